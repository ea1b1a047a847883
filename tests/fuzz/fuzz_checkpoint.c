/* Feeds the reader of shards any bytes, once as they are and once with the digest that they should have, so that what
 * stands behind it is reached too.
 *
 * Besides crashes and leaks it looks for errors without a text, for parts that are accepted though their numbers cannot
 * be, and for values that are handed out though they are not those of the sums.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include <xxhash.h>

#include "store/shard.h"
#include "fuzz.h"

/* The same bytes with the right digest, which covers everything except the areas. */
static void seal(uint8_t *bytes, size_t size)
{
    struct tr_checked_header *h = (struct tr_checked_header *)(void *)bytes;
    if (size < sizeof *h || h->header > size || h->header < sizeof *h) return;
    const struct tr_checked_area *area = (const struct tr_checked_area *)(const void *)(h + 1);
    size_t capacity = (h->header - sizeof *h) / sizeof *area, at = h->header;
    XXH3_state_t *state = XXH3_createState();
    h->bytes = size;
    h->digest = 0;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, bytes, h->header);
    for (size_t i = 0; i < h->areas && i < capacity; i++) {
        uint64_t first = area[i].first, n = area[i].bytes;
        if (first < at || first > size || n > size - first) break;
        XXH3_64bits_update(state, bytes + at, first - at);
        at = first + n;
    }
    XXH3_64bits_update(state, bytes + at, size - at);
    h->digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
}

static void check_part(struct tr_shard *shard, size_t i, const struct tr_part *p)
{
    uint64_t rows = 0, end = 0, n = tr_part_elements(p), size = tr_part_type_size(p->type);
    for (size_t k = 0; k < p->runs; k++) {
        DEMAND(p->run[k].first >= end && p->run[k].first + p->run[k].n <= p->total_rows);
        end = p->run[k].first + p->run[k].n;
        rows += p->run[k].n;
    }
    DEMAND(rows == p->rows && (p->kind == TR_PART_LISTS) == (p->begin != NULL));
    char *values = malloc(n * size + 1);
    DEMAND(values);
    DEMAND(tr_shard_read(shard, i, 0, n, values) == TR_OK ||
           strstr(tr_error_text(), "do not match their checksum"));
    if (n > 2) (void)tr_shard_read(shard, i, 1, n - 2, values);
    free(values);
}

static void try_bytes(const uint8_t *data, size_t size)
{
    char path[64];
    struct tr_shard *shard;
    int fd = memfd_create("fuzz", 0);
    DEMAND(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int status = tr_shard_open(path, NULL, NULL, &shard);
    if (status == TR_OK) {
        for (size_t i = 0; i < shard->parts; i++) check_part(shard, i, &shard->part[i]);
        tr_shard_close(&shard);
    } else {
        expect(status == TR_ERR_DATA && strncmp(tr_error_text(), path, strlen(path)) == 0 &&
                   !strchr(tr_error_text(), '\n'),
               "odd error");
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_bytes(data, size);
    uint8_t *copy = malloc(size + 1);
    DEMAND(copy);
    memcpy(copy, data, size);
    seal(copy, size);
    try_bytes(copy, size);
    free(copy);
    return 0;
}
