#include "job/text.h"

#include <string.h>

#include "base/base.h"

struct tr_shown tr_shown_words(const char *const *words)
{
    struct tr_shown shown = {""};
    for (size_t i = 0, n = 0; words[i] && n < sizeof shown.text; i++) {
        const char *between = i == 0 ? "" : words[i + 1] ? ", " : " or ";
        n += (size_t)snprintf(shown.text + n, sizeof shown.text - n, "%s%s", between, words[i]);
    }
    return shown;
}

size_t tr_edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 48 };
    size_t n = strlen(a), m = strlen(b), cost[LONGEST + 1][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return SIZE_MAX;
    for (size_t j = 0; j <= m; j++) cost[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        cost[i][0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t change = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            cost[i][j] = tr_min_size(change, 1 + tr_min_size(cost[i - 1][j], cost[i][j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost[i][j] = tr_min_size(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    }
    return cost[n][m];
}
