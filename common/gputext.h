/*
 * gputext.h - devices and library versions, as people and messages name them.
 *
 * Pure; needs no device and no library.
 */
#ifndef WEIR_GPUTEXT_H
#define WEIR_GPUTEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GPU_UUID_LEN	16
#define GPU_UUID_TEXT	41	/* bytes of "GPU-8-4-4-4-12", with NUL */
#define GPU_HANDLE_LEN	64	/* bytes of what another process maps memory by */
#define NCCL_TEXT	16	/* of "2.28.9" */

/* "GPU-..." as nvidia-smi shows it. */
void gpu_uuid_text(const unsigned char uuid[GPU_UUID_LEN],
		   char text[GPU_UUID_TEXT]);
/* The other way; false, and uuid untouched, if text is none. */
bool gpu_uuid_of(const char *text, unsigned char uuid[GPU_UUID_LEN]);
/* 2n hexadecimal digits and no more; false if text is something else. */
bool gpu_hex(const char *text, unsigned char *out, size_t n);
void nccl_version_text(uint32_t code, char text[NCCL_TEXT]);
/* Do these speak with each other?  Major and minor must be equal. */
bool nccl_is_compatible(uint32_t a, uint32_t b);

#endif
