/* Feeds the reader of model.txt any bytes.
 *
 * Besides crashes and leaks it looks for errors without a text, and for models that are accepted with weights
 * that cannot be used.
 */
#include <math.h>

#include "model/linear/linear.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    struct tr_linear_model m;
    int status = tr_linear_model_parse_text(text, size, "model.txt", &m);
    if (status == TR_OK) {
        expect(m.features > 0 && m.features <= size && m.features * m.outputs <= size && isfinite(*m.bias),
               "odd sizes");
        for (uint64_t i = 0; i < m.features * m.outputs; i++)
            expect(isfinite(tr_linear_model_weight(&m, i)), "a weight is not finite");
        tr_linear_model_free(&m);
    } else {
        expect(status == TR_ERR_DATA && strncmp(tr_error_text(), "model.txt:", 10) == 0, "odd error");
    }
    free(text);
    return 0;
}
