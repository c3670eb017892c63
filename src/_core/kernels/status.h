/* The results of a kernel: a count or zero for success, one of these statuses for wrong bytes.
 *
 * The words for each are in pyreplog/errors.py (raise_for_status); a test compares the two lists.
 */
#ifndef REPLOG_STATUS_H
#define REPLOG_STATUS_H

enum replog_status {
    STATUS_OK = 0,
    STATUS_CUT = -1,          /* the structure needs more bytes than there are */
    STATUS_VARINT = -2,       /* varint longer than its type allows */
    STATUS_LENGTH = -3,       /* length field contradicts the structure */
    STATUS_MAGIC = -4,        /* not a record batch of format v2 */
    STATUS_CRC = -5,          /* stored CRC-32C is not that of the bytes */
    STATUS_COUNT = -6,        /* record count contradicts the records */
    STATUS_ORDER = -7,        /* offsets do not rise */
    STATUS_ABSURD = -8,       /* negative count, or more elements than bytes */
    STATUS_HEADER_KEY = -9,   /* header key is null */
    STATUS_UTF8 = -10,        /* header key is not UTF-8 */
    STATUS_CODEC = -11,       /* unknown compression codec */
    STATUS_TRAILING = -12,    /* bytes behind the last record */
    STATUS_RANGE = -13,       /* offset or position does not fit its segment */
    STATUS_SPACE = -14,       /* output buffer too small */
    STATUS_EPOCH = -15        /* leader epoch falls */
};

#endif
