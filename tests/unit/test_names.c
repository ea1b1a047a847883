#include "unit.h"

#include "data/names.h"
#include "data/reader.h"

/* ---- distinct ids ---- */

UNIT_CASE(numbers_keep_the_places_where_they_were_first_met)
{
    enum { N = 30000 };
    static uint64_t number[N];
    struct tr_ids ids = {.are_text = false};
    for (size_t i = 0; i < N;
         i++) { /* some small, some large, some on both sides of the limit of the direct index */
        number[i] = i % 3 == 0 ? i * 7 : i % 3 == 1 ? tr_mix(i) : (uint64_t)1 << (10 + i % 30);
        if (i % 10 == 9) number[i] = number[i / 2];
    }
    static uint32_t place[N];
    for (size_t i = 0; i < N; i++) {
        ck_ok(tr_ids_number(&ids, number[i], &place[i]));
        ck_assert_uint_eq(ids.number[place[i]], number[i]);
    }
    for (size_t i = 0; i < N; i++) {
        uint32_t again;
        ck_ok(tr_ids_number(&ids, number[i], &again));
        ck_assert_uint_eq(again, place[i]);
    }
    uint32_t *order;
    ck_ok(tr_ids_sort(&ids, &order));
    for (size_t i = 1; i < ids.n; i++) ck_assert(ids.number[order[i - 1]] < ids.number[order[i]]);
    free(order);
    tr_ids_free(&ids);
}

UNIT_CASE(texts_are_told_apart_by_all_their_bytes)
{
    enum { N = 5000 };
    struct tr_ids ids = {.are_text = true};
    char text[64];
    uint32_t place, again;
    for (size_t i = 0; i < N; i++) {
        int n = snprintf(text, sizeof text, "%s%llx", i % 2 ? "a long common beginning " : "",
                         (unsigned long long)tr_mix(i));
        ck_ok(tr_ids_add_text(&ids, text, (size_t)n, &place));
        ck_assert_uint_eq(place, i);
        ck_ok(tr_ids_add_text(&ids, text, (size_t)n, &again));
        ck_assert_uint_eq(again, i);
    }
    ck_ok(tr_ids_add_text(&ids, "a\0b", 3, &place));
    ck_ok(tr_ids_add_text(&ids, "a\0c", 3, &again));
    ck_assert_uint_ne(place, again);
    uint32_t *order;
    ck_ok(tr_ids_sort(&ids, &order));
    for (size_t i = 1; i < ids.n; i++) {
        const char *a = ids.text + ids.begin[order[i - 1]], *b = ids.text + ids.begin[order[i]];
        size_t n = (size_t)(ids.begin[order[i - 1] + 1] - ids.begin[order[i - 1]]);
        size_t m = (size_t)(ids.begin[order[i] + 1] - ids.begin[order[i]]);
        int c = memcmp(a, b, tr_min_size(n, m));
        ck_assert(c < 0 || (c == 0 && n < m));
    }
    free(order);
    tr_ids_free(&ids);
}

/* Some are there twice, some are the beginnings of others, and all have much in common. */
UNIT_CASE(lists_that_are_not_searched_are_sorted_too)
{
    enum { N = 4000 };
    struct tr_ids texts = {.are_text = true}, numbers = {.are_text = false};
    char text[512];
    uint32_t place, *order;
    memset(text, 'a', sizeof text);
    for (size_t i = 0; i < N; i++) {
        size_t n = (size_t)(tr_mix(i) % 400), at = (size_t)(tr_mix(i + N) % (n + 1));
        text[at] = (char)(i % 5 == 0 ? 0 : 200 + i % 5);
        ck_ok(tr_ids_append_text(&texts, text, n, &place));
        ck_ok(tr_ids_append_number(&numbers, tr_mix(i % (N / 2)), &place));
        text[at] = 'a';
    }
    ck_ok(tr_ids_sort(&texts, &order));
    for (size_t i = 1; i < N; i++) {
        size_t n, m;
        const char *a = tr_ids_text(&texts, order[i - 1], &n), *b = tr_ids_text(&texts, order[i], &m);
        int c = memcmp(a, b, tr_min_size(n, m));
        ck_assert(c < 0 || (c == 0 && n <= m));
    }
    free(order);
    ck_ok(tr_ids_sort(&numbers, &order));
    for (size_t i = 1; i < N; i++) ck_assert(numbers.number[order[i - 1]] <= numbers.number[order[i]]);
    free(order);
    tr_ids_free(&texts);
    tr_ids_free(&numbers);
}

/* ---- names in memory ---- */

UNIT_CASE(names_are_found_by_what_they_are)
{
    static const uint64_t number[] = {3, 5, 18446744073709551615u};
    struct tr_name_list numbers = {.n = 3, .number = number};
    uint64_t found;
    ck_assert(tr_name_find(&numbers, "5", 1, &found) && found == 1);
    ck_assert(tr_name_find(&numbers, "18446744073709551615", 20, &found) && found == 2);
    ck_assert(!tr_name_find(&numbers, "4", 1, &found) && !tr_name_find(&numbers, "05", 2, &found));
    ck_assert(!tr_name_find(&numbers, "x", 1, &found) && !tr_name_find(&numbers, "", 0, &found));
    static const uint64_t begin[] = {0, 2, 5, 6};
    struct tr_name_list texts = {.n = 3, .begin = begin, .text = "ababcb"};
    ck_assert(tr_name_find(&texts, "ab", 2, &found) && found == 0);
    ck_assert(tr_name_find(&texts, "abc", 3, &found) && found == 1);
    ck_assert(tr_name_find(&texts, "b", 1, &found) && found == 2);
    ck_assert(!tr_name_find(&texts, "a", 1, &found) && !tr_name_find(&texts, "c", 1, &found));
    char *text;
    size_t size;
    FILE *file = open_memstream(&text, &size);
    ck_ok(tr_name_print(&texts, 1, file));
    ck_ok(tr_name_print(&numbers, 2, file));
    fclose(file);
    ck_assert_str_eq(text, "abc18446744073709551615");
    free(text);
}
