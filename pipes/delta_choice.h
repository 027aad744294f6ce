/*
 * delta_choice.h - encodings and checksums, as options have them.
 */
#ifndef WEIR_DELTA_CHOICE_H
#define WEIR_DELTA_CHOICE_H

extern const char *const delta_encodings[], *const delta_checksums[];

/* A patch_kind or DELTA_AUTO, of an index into delta_encodings; those of
 * checksums are an enum checksum_kind. */
unsigned delta_encoding_of(unsigned choice);

#endif
