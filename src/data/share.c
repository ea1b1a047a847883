#include "data/share.h"

#include "base/base.h"

static int each_chunk(struct tr_text_share *share, const struct tr_file_part *part, struct tr_text *text,
                      int (*chunk)(void *state, const struct tr_text_share_chunk *chunk), void *state)
{
    bool in_turns = share->files->file[part->file].gzip && part->readers > 1;
    while (!share->enough) {
        struct tr_text_share_chunk c = {.file = part->file};
        TR_TRY(tr_text_next(text, &c.lines));
        if (share->progress) TR_TRY(share->progress(share->progress_state, share->done + tr_text_done(text)));
        if (c.lines.begin == c.lines.end && !c.lines.too_long) break;
        if (in_turns) c.piece = c.lines.offset / part->bytes;
        TR_TRY(chunk(state, &c));
    }
    share->done += tr_text_done(text);
    return TR_OK;
}

static int each_of_part(struct tr_text_share *share, const struct tr_file_part *part,
                        int (*chunk)(void *state, const struct tr_text_share_chunk *chunk), void *state)
{
    struct tr_text *text;
    TR_TRY(tr_text_open(share->files, part, share->chunk_bytes ? share->chunk_bytes : TR_TEXT_CHUNK, &text));
    int status = each_chunk(share, part, text, chunk, state);
    tr_text_close(text);
    return status;
}

int tr_read_runs_add(struct tr_read_runs *runs, const struct tr_text_share_chunk *chunk, uint64_t rows)
{
    const struct tr_chunk *lines = &chunk->lines;
    if (!runs || lines->too_long) return TR_OK;
    uint64_t end = lines->offset + (uint64_t)(lines->end - lines->begin);
    struct tr_read_run *last = runs->n > 0 ? &runs->run[runs->n - 1] : NULL;
    if (last && last->file == chunk->file && last->end == lines->offset) {
        last->end = end;
        last->rows += rows;
        return TR_OK;
    }
    TR_TRY(TR_GROW(&runs->run, &runs->room, runs->n + 1));
    runs->run[runs->n++] = (struct tr_read_run){chunk->file, lines->offset, end, rows};
    return TR_OK;
}

int tr_text_share_each(struct tr_text_share *share,
                       int (*chunk)(void *state, const struct tr_text_share_chunk *chunk), void *state)
{
    struct tr_file_part part;
    size_t reader = share->reader, readers = share->readers;
    for (int lap = 0; lap < (share->deal > 0 ? 2 : 1); lap++)
        for (size_t file = 0; file < share->files->n && !share->enough; file++) {
            bool mine = share->deal > 0
                            ? tr_files_deal(share->files, file, reader, readers, share->deal, lap, &part)
                            : tr_files_part(share->files, file, reader, readers, &part);
            if (mine) TR_TRY(each_of_part(share, &part, chunk, state));
        }
    return TR_OK;
}
