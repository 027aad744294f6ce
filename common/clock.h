/*
 * clock.h - time.  Only shells read clocks; machines get "now" in events.
 *
 * Deadlines inside a process use the monotonic clock.  A run's own deadline
 * must survive restarts of its stages, so it is kept as CLOCK_BOOTTIME plus
 * the kernel's boot id: another boot means that it has passed (I13).
 */
#ifndef WEIR_CLOCK_H
#define WEIR_CLOCK_H

#include <stdint.h>

#define CLOCK_BOOT_ID_LEN 36	/* characters of the kernel's boot id */
#define CLOCK_TEXT_MAX 40	/* bytes, NUL included */

int64_t clock_mono_ns(void);
int64_t clock_mono_ms(void);
int64_t clock_boot_ms(void);
int64_t clock_wall_ms(void);	/* for people and ledgers only */
/* Such a time as people read it: local, "2026-11-29T22:01:00+01:00". */
void clock_wall_text(int64_t wall_ms, char out[CLOCK_TEXT_MAX]);
/* The kernel's boot id, terminated; out has CLOCK_BOOT_ID_LEN + 1 bytes. */
int clock_boot_id(char *out);

#endif
