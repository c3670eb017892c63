/* CRC-32C (Castagnoli): reflected polynomial 0x82f63b78, start and final xor 0xffffffff. */
#ifndef REPLOG_CRC32C_H
#define REPLOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC of `size` bytes at p, going on from `crc` (0 at the start): crc32c(crc32c(0, a), b) is that
 * of a followed by b. Each call chooses the fastest way of the processor, by the features that
 * the C runtime detected when it was loaded. */
uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t size);

/* The ways by themselves, for tests: 0 table, 1 the crc32 instruction, 2 that beside 128-bit
 * carry-less products, 3 beside 256-bit ones, 4 512-bit products. Falls back to the next lower one
 * that this processor has, and stores the way that it used in *used. */
uint32_t crc32c_by(int way, uint32_t crc, const uint8_t *p, size_t size, int *used);

#endif
