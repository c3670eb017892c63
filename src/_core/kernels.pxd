"""Declarations of the C kernels, and the function that turns their status into an exception."""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t


# With fewer bytes than this, releasing the GIL costs more than other threads gain.
cdef enum:
    NOGIL_SIZE = 5 * 1024


cdef extern from "status.h" nogil:
    enum:
        STATUS_OK
        STATUS_CUT
        STATUS_VARINT
        STATUS_LENGTH
        STATUS_MAGIC
        STATUS_CRC
        STATUS_COUNT
        STATUS_ORDER
        STATUS_ABSURD
        STATUS_HEADER_KEY
        STATUS_UTF8
        STATUS_CODEC
        STATUS_TRAILING
        STATUS_RANGE
        STATUS_SPACE
        STATUS_EPOCH


cdef inline int check(int status, long long position) except -1 nogil:
    """Raise the exception of a kernel's negative status. Return any other status."""
    if status < 0:
        fail(status, position)
    return status


cdef inline int fail(int status, long long position) except -1 with gil:
    # A function of its own: Cython asks for the GIL state at the entry of a function that contains
    # `with gil`, which would be once per record.
    from pyreplog.errors import raise_for_status
    raise_for_status(status, position)


cdef extern from "bytes.h" nogil:
    ctypedef struct cursor:
        const uint8_t *p
        const uint8_t *end
    int64_t subtract_wrapping(int64_t a, int64_t b)


cdef extern from "bytes.h" nogil:
    void store_u32(uint8_t *p, uint32_t v)

cdef extern from "crc32c.h" nogil:
    uint32_t crc32c_update "crc32c"(uint32_t crc, const uint8_t *p, size_t size)
    uint32_t crc32c_by(int way, uint32_t crc, const uint8_t *p, size_t size, int *used)


cdef extern from "batch.h" nogil:
    enum:
        BATCH_LOG_OVERHEAD
        BATCH_HEADER_SIZE
        ATTRIBUTE_CODEC
        ATTRIBUTE_LOG_APPEND_TIME
        ATTRIBUTE_TRANSACTIONAL
        ATTRIBUTE_CONTROL
        ATTRIBUTE_DELETE_HORIZON
        ATTRIBUTE_TIMELESS
    ctypedef struct batch_header:
        int64_t base_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int32_t size
        int32_t leader_epoch
        int32_t last_offset_delta
        int32_t base_sequence
        int32_t record_count
        uint32_t crc
        int16_t attributes
        int16_t producer_epoch
    ctypedef struct batch_record:
        int64_t timestamp_delta
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        int32_t offset_delta
        int32_t key_size
        int32_t value_size
        int32_t header_count
        int32_t headers_size
        int32_t delivery_count
    ctypedef struct record_header:
        const uint8_t *key
        const uint8_t *value
        int32_t key_size
        int32_t value_size
    int64_t batch_last_offset(const batch_header *h)
    bint batch_is_timeless(const batch_header *h)
    int64_t batch_record_timestamp(const batch_header *h, int64_t timestamp_delta)
    int batch_header_read(const uint8_t *p, const uint8_t *end, batch_header *out)
    int batch_read(const uint8_t *p, const uint8_t *end, batch_header *out)
    int64_t batch_size_at(const uint8_t *p, const uint8_t *end)
    int batch_check_crc(const uint8_t *p, size_t size)
    int record_read(cursor *c, batch_record *out)
    int header_read(cursor *c, record_header *out)
    int batch_check_records(const batch_header *h, const uint8_t *p, const uint8_t *end, int64_t *position,
                            int64_t *max_timestamp)
    ctypedef struct batch_part:
        int64_t size
        int32_t count
        int32_t left
        int32_t previous
    int batch_check_part(const batch_header *h, const uint8_t *p, const uint8_t *end, bint last, batch_part *part,
                         int64_t *position)
    int batch_find_timestamp(const batch_header *h, const uint8_t *p, const uint8_t *end, int64_t timestamp,
                             int64_t start_offset, int64_t *offset, int64_t *found, int64_t *position)
    int64_t record_size(int64_t timestamp_delta, int32_t offset_delta, int64_t key_size, int64_t value_size,
                        int32_t header_count, int64_t headers_size)
    uint8_t *record_write(uint8_t *p, const uint8_t *end, int64_t timestamp_delta, int32_t offset_delta,
                          const uint8_t *key, int64_t key_size, const uint8_t *value, int64_t value_size,
                          int32_t header_count, int64_t headers_size)
    uint8_t *record_write_value(uint8_t *p, const uint8_t *end, int64_t timestamp_delta, int32_t offset_delta,
                                const uint8_t *value, int64_t value_size)
    ctypedef struct record_frame:
        pass
    record_frame record_frame_of(int64_t timestamp_delta)
    uint8_t *record_write_framed(record_frame *f, uint8_t *p, const uint8_t *end, int32_t offset_delta,
                                 const uint8_t *value, int64_t value_size)
    int64_t header_size(int64_t key_size, int64_t value_size)
    uint8_t *header_write(uint8_t *p, const uint8_t *end, const uint8_t *key, int64_t key_size, const uint8_t *value,
                          int64_t value_size)
    void batch_header_write(uint8_t *p, batch_header *h)
    void batch_stamp(uint8_t *p, int64_t base_offset, int32_t leader_epoch)


cdef extern from "legacy.h" nogil:
    ctypedef struct legacy_message:
        int64_t offset
        int64_t timestamp
        const uint8_t *key
        const uint8_t *value
        int32_t key_size
        int32_t value_size
        int32_t size
        int8_t magic
        int8_t attributes
    bint legacy_begins(const uint8_t *p, const uint8_t *end)
    int legacy_read(const uint8_t *p, const uint8_t *end, legacy_message *out)


cdef extern from "segment.h" nogil:
    enum:
        SEGMENT_NONE
    ctypedef struct segment_scan:
        int64_t base_offset
        int64_t position
        int64_t next_offset
        int64_t max_timestamp
        int64_t max_timestamp_offset
        int64_t batch_count
        int64_t bytes_since_entry
        int64_t index_interval
        int64_t last_time_entry
        int64_t first_producer
        int32_t last_epoch
        bint check_crc
    ctypedef struct segment_step:
        batch_header header
        bint epoch_rises
        bint has_entry
        bint has_time
    void segment_scan_begin(segment_scan *scan, int64_t base_offset, int64_t position, int64_t next_offset,
                            int64_t index_interval, bint check_crc)
    int segment_scan_step(segment_scan *scan, const uint8_t *p, const uint8_t *end, segment_step *step)
    int64_t segment_find_offset(const uint8_t *p, const uint8_t *end, int64_t offset, int64_t *size)
    int64_t segment_find_timestamp(const uint8_t *p, const uint8_t *end, int64_t timestamp, int64_t *size)
    int64_t segment_find_producer(const uint8_t *p, const uint8_t *end, bint transactional, int64_t *size)
    int64_t segment_whole_batches(const uint8_t *p, const uint8_t *end, int64_t end_offset, int64_t size_max)


cdef extern from "index.h" nogil:
    enum:
        OFFSET_ENTRY_SIZE
        TIME_ENTRY_SIZE
    ctypedef struct offset_entry:
        int32_t relative_offset
        int32_t position
    ctypedef struct time_entry:
        int64_t timestamp
        int32_t relative_offset
    offset_entry offset_entry_at(const uint8_t *entries, int64_t slot)
    time_entry time_entry_at(const uint8_t *entries, int64_t slot)
    void offset_entry_write(uint8_t *p, offset_entry e)
    void time_entry_write(uint8_t *p, time_entry e)
    int index_relative(int64_t offset, int64_t base_offset, int32_t *relative)
    int64_t offset_index_check(const uint8_t *entries, int64_t count)
    int64_t time_index_check(const uint8_t *entries, int64_t count)
    int64_t offset_index_below(const uint8_t *entries, int64_t count, int64_t relative)
    int64_t time_index_below(const uint8_t *entries, int64_t count, int64_t relative)
    int64_t offset_index_lookup(const uint8_t *entries, int64_t count, int64_t relative)
    int64_t time_index_lookup(const uint8_t *entries, int64_t count, int64_t timestamp)


cdef extern from "columns.h" nogil:
    enum:
        COLUMN_PARTITION
        COLUMN_OFFSET
        COLUMN_TIMESTAMP
        COLUMN_TIMESTAMP_TYPE
        COLUMN_KEY
        COLUMN_VALUE
        COLUMN_HEADERS
        COLUMN_LEADER_EPOCH
    ctypedef struct binary_column:
        int32_t *offsets
        uint8_t *validity
        uint8_t *data
        int64_t size
        int64_t capacity
        int64_t null_count
    ctypedef struct columns:
        uint32_t wanted
        int64_t row_count
        int64_t row_capacity
        int32_t *partition
        int64_t *offset
        int64_t *timestamp
        uint8_t *timestamp_validity
        int64_t timestamp_null_count
        int8_t *timestamp_type
        int32_t *leader_epoch
        binary_column key
        binary_column value
        int32_t *header_offsets
        int64_t header_count
        int64_t header_capacity
        binary_column header_key
        binary_column header_value
    ctypedef struct columns_selection:
        int64_t start_offset
        int64_t end_offset
        int64_t first_timestamp
        int64_t last_timestamp
        bint timed
        int32_t partition
    ctypedef struct columns_progress:
        int64_t position
        int64_t next_offset
        int64_t rows_needed
        int64_t bytes_needed
    int64_t columns_rows_size(const columns *c, int64_t capacity)
    void columns_move(columns *c, uint8_t *rows, int64_t capacity)
    int64_t columns_append(columns *c, const columns_selection *selection, const batch_header *h, const uint8_t *p,
                           const uint8_t *end, columns_progress *progress)
    int columns_extend(columns *c, const columns_selection *selection, const uint8_t *p, const uint8_t *end,
                       bint check_crc, int64_t row_limit, int64_t size_limit, columns_progress *progress)
    int64_t columns_size(const columns *c)
    void columns_repeat(const uint8_t *text, int64_t size, int64_t count, int32_t *offsets, uint8_t *data)


cdef extern from "rows.h" nogil:
    ctypedef struct rows_binary:
        const uint8_t *validity
        const void *offsets
        const uint8_t *data
        int32_t data_size
        int64_t first
    ctypedef struct rows_fixed:
        const uint8_t *validity
        const void *values
        int64_t first
    ctypedef struct rows:
        rows_binary key
        rows_binary value
        rows_fixed timestamp
        rows_fixed partition
        rows_binary headers
        rows_fixed header
        rows_binary header_key
        rows_binary header_value
        int64_t header_count
    ctypedef struct rows_batch:
        uint8_t *p
        int64_t capacity
        int64_t target
        int64_t used
        int64_t base_timestamp
        int64_t max_timestamp
        uint64_t seed
        uint64_t sum
        int32_t record_count
    uint32_t murmur2(const uint8_t *p, size_t size)
    int64_t rows_place(const rows *r, int64_t count, int32_t partition_count, int32_t keyless, int32_t *out)
    void rows_group(const int32_t *partitions, int64_t count, int32_t partition_count, int64_t *starts, int32_t *order)
    int64_t rows_append(const rows *r, const int32_t *order, int64_t start, int64_t end, int64_t timestamp,
                        rows_batch *b, int64_t *needed)


cdef extern from "xxh64.h" nogil:
    uint64_t xxh64(const uint8_t *p, size_t size, uint64_t seed)


cdef extern from "clean.h" nogil:
    ctypedef struct hash128:
        uint64_t low
        uint64_t high
    ctypedef struct keymap_slot:
        hash128 hash
        int64_t end
    ctypedef struct keymap:
        keymap_slot *slots
        uint64_t slot_count
        uint64_t used
        uint64_t used_max
        uint64_t secret[2]
    ctypedef struct clean_gaps:
        const int64_t *pairs
        int64_t count
        int64_t slot
    ctypedef struct clean_walk:
        int64_t position
        int64_t next_offset
        int32_t leader_epoch
        bint dense
        clean_gaps gaps
    ctypedef struct clean_rules:
        const keymap *map
        int64_t map_end
        int64_t round_end
        int64_t now_ms
        int64_t droppable_end
        bint drop_unkeyed
    ctypedef struct clean_verdict:
        int64_t first_timestamp
        int64_t max_timestamp
        int64_t dropped_tombstone
        int32_t kept
        int32_t kept_tombstones
        int32_t unkeyed
    ctypedef struct clean_counts:
        int64_t records_read
        int64_t records_kept
        int64_t unkeyed
        int64_t dropped_tombstone
    int64_t keymap_find(const keymap *map, const uint8_t *key, int32_t size)
    int keymap_note_records(keymap *map, const batch_header *h, const uint8_t *p, const uint8_t *end,
                            int64_t start_offset, int64_t *last_offset, int64_t *position)
    int keymap_note_batches(keymap *map, clean_walk *walk, const uint8_t *p, const uint8_t *end, int64_t start_offset,
                            int64_t *latest)
    int clean_judge(const clean_rules *rules, const batch_header *h, const uint8_t *p, const uint8_t *end,
                    uint8_t *bits, clean_verdict *out, int64_t *position)
    uint8_t *clean_write(const batch_header *h, const uint8_t *p, const uint8_t *end, const uint8_t *bits,
                         int64_t base_timestamp, uint8_t *out, const uint8_t *out_end)
    int clean_batches(const clean_rules *rules, clean_walk *walk, const uint8_t *p, const uint8_t *end, uint8_t *bits,
                      uint8_t *out, const uint8_t *out_end, int64_t *written, clean_counts *counts)
    int64_t clean_find_gaps(const uint8_t *p, const uint8_t *end, int64_t *next_offset, int64_t *pairs, int64_t max,
                            int64_t *position)


cdef extern from "arrow_abi.h" nogil:
    enum:
        ARROW_NULLABLE
    ctypedef struct arrow_schema:
        const char *format
        const char *name
        const char *metadata
        int64_t flags
        int64_t n_children
        arrow_schema **children
        arrow_schema *dictionary
        void (*release)(arrow_schema *) noexcept nogil
        void *private_data
    ctypedef struct arrow_array:
        int64_t length
        int64_t null_count
        int64_t offset
        int64_t n_buffers
        int64_t n_children
        const void **buffers
        arrow_array **children
        arrow_array *dictionary
        void (*release)(arrow_array *) noexcept nogil
        void *private_data
    ctypedef struct arrow_array_stream:
        int (*get_schema)(arrow_array_stream *, arrow_schema *) noexcept nogil
        int (*get_next)(arrow_array_stream *, arrow_array *) noexcept nogil
        const char *(*get_last_error)(arrow_array_stream *) noexcept nogil
        void (*release)(arrow_array_stream *) noexcept nogil
        void *private_data
    ctypedef struct shared_count:
        pass
    void shared_begin(shared_count *count)
    void shared_take(shared_count *count)
    bint shared_drop(shared_count *count)
    enum:
        LARGE_PAGE_SIZE


cdef extern from "foreign.h" nogil:
    bint is_valid(const uint8_t *validity, int64_t row)
    int32_t i32_at(const void *items, int64_t i)
    int64_t i64_at(const void *items, int64_t i)


cdef extern from "table.h" nogil:
    enum:
        TABLE_NONE
        TABLE_SMALL
        TABLE_LARGE
        TABLE_VIEW
        TABLE_FIXED
    ctypedef struct table_bytes:
        const uint8_t *validity
        const void *places
        const uint8_t *data
        int64_t data_size
        void *buffers  # const uint8_t *const *, which Cython cannot say
        const void *buffer_sizes
        int64_t buffer_count
        int64_t first
        int32_t width
        int32_t layout
    ctypedef struct table_time:
        const uint8_t *validity
        const void *values
        int64_t first
        int64_t multiplier
        int64_t divisor
        bint is_null
        bint is_number
    ctypedef struct table_rows:
        table_bytes key
        table_bytes value
        table_time timestamp
        table_bytes headers
        table_bytes header
        table_bytes header_key
        table_bytes header_value
        int64_t header_count
    ctypedef struct table_batch:
        uint8_t *p
        int64_t capacity
        int64_t target
        int64_t used
        int64_t base_timestamp
        int64_t max_timestamp
        int32_t record_count
    int64_t table_check(const table_rows *t, int64_t count, int64_t size_max, int64_t *row)
    bint table_headers_empty(const table_rows *t, int64_t count)
    int64_t table_time_at(const table_rows *t, int64_t row, int64_t otherwise)
    int64_t table_encode(const table_rows *t, int64_t start, int64_t count, int64_t timestamp, table_batch *b)
