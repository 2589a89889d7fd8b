/* Runs models that `python -m ngraph_mxnet compile` has written: docs/artefact.md.
 *
 * A model may be used by any number of threads at once; each call has memory of its own for what it computes meanwhile.
 * Texts and ports belong to the model and live as long as it does. */
#ifndef NGRAPH_RUNTIME_H
#define NGRAPH_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NGRAPH_RUNTIME_ABI 1

#if defined(__GNUC__)
#define NGRAPH_API __attribute__((visibility("default")))
#else
#define NGRAPH_API
#endif

typedef struct ngraph_model ngraph_model;

typedef enum {
  NGRAPH_OK = 0,
  NGRAPH_ERROR_FILE = 1,     /* there is no such file, or it can't be read */
  NGRAPH_ERROR_FORMAT = 2,   /* it is none of ours, damaged, cut off, or of a newer format */
  NGRAPH_ERROR_CPU = 3,      /* it has nothing that this CPU runs */
  NGRAPH_ERROR_ARGUMENT = 4, /* a call's arguments do not fit */
  NGRAPH_ERROR_MEMORY = 5
} ngraph_status;

/* Elements: "f32", "f64", "i8", "i32", "i64", "u8", "bool", ...: as in the IR's types. */
typedef struct {
  const char* name;
  const char* element;
  size_t element_bytes;
  size_t rank;
  const int64_t* shape;
  size_t bytes; /* of the whole dense, row-major array */
} ngraph_port;

/* "0.7.0" */
NGRAPH_API const char* ngraph_runtime_version(void);

/* What went wrong in this thread's last call that returned no NGRAPH_OK. */
NGRAPH_API const char* ngraph_last_error(void);

/* The file stays mapped until the model is freed; it may be renamed or removed meanwhile, but not written to: writers
 * make a new file and rename it, as ours do. */
NGRAPH_API ngraph_status ngraph_load(const char* path, ngraph_model** model);

/* No call may be under way. Null is allowed. */
NGRAPH_API void ngraph_free(ngraph_model* model);

/* A JSON object: name, made_by, metadata, precision. */
NGRAPH_API const char* ngraph_metadata(const ngraph_model* model);

/* "avx512", "avx2" or "baseline": whose instructions run. */
NGRAPH_API const char* ngraph_instruction_set(const ngraph_model* model);

/* Sets of shapes that the model was compiled for. Names and elements are the same in all. */
NGRAPH_API size_t ngraph_shape_sets(const ngraph_model* model);
NGRAPH_API size_t ngraph_inputs(const ngraph_model* model);
NGRAPH_API size_t ngraph_outputs(const ngraph_model* model);

/* Null if there is no such set or port. */
NGRAPH_API const ngraph_port* ngraph_input(const ngraph_model* model, size_t shape_set, size_t number);
NGRAPH_API const ngraph_port* ngraph_output(const ngraph_model* model, size_t shape_set, size_t number);

/* Computes the outputs from the inputs: dense, row-major arrays of the ports' sizes, in any alignment that fits their
 * elements. None of the outputs may overlap another array. `threads`: at most so many work on it, this one among them;
 * 0: as many as there are cores. The results do not depend on it. */
NGRAPH_API ngraph_status ngraph_run(ngraph_model* model, size_t shape_set, const void* const* inputs,
                                    void* const* outputs, int threads);

#ifdef __cplusplus
}
#endif

#endif
