/* Runs models that `python -m ngraph_mxnet compile` has written: docs/artefact.md.
 *
 * Threads: a model may be used by any number of threads at once; each call has memory of its own for what it computes
 * meanwhile. Only ngraph_free must come alone.
 *
 * Fork: a child may use the models that its parent has loaded, and load others; their weights stay shared. Calls that
 * other threads of the parent were within are not in the child, and their arrays there are half written.
 *
 * Memory: texts, ports and references belong to the model and live as long as it does.
 *
 * Null pointers: a null model has nothing (0, "", null), and can't be run. Where a function returns a status, a null
 * argument is an NGRAPH_ERROR_ARGUMENT, but for arrays without elements, which may be null. */
#ifndef NGRAPH_RUNTIME_H
#define NGRAPH_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when what is declared here changes; additions leave it. */
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

/* The NGRAPH_RUNTIME_ABI that the library was built with: a program that loads it at run time compares it with its own. */
NGRAPH_API int ngraph_runtime_abi(void);

/* What went wrong in this thread's last call that returned no NGRAPH_OK, in UTF-8 but for paths, which stand there as they
 * were given; "" before the first. The text belongs to the library, and is good until the next call of this thread that
 * fails, or its end. Never null. */
NGRAPH_API const char* ngraph_last_error(void);

/* The path's bytes go to the system as they are, in whatever encoding its file names have. The file stays mapped until the
 * model is freed; it may be renamed or removed meanwhile, but not written to: writers make a new file and rename it, as
 * ours do. If it fails, *model is null. */
NGRAPH_API ngraph_status ngraph_load(const char* path, ngraph_model** model);

/* No call may be under way. Null is allowed. */
NGRAPH_API void ngraph_free(ngraph_model* model);

/* A JSON object: name, made_by, metadata, precision. */
NGRAPH_API const char* ngraph_metadata(const ngraph_model* model);

/* "amx", "avx512", "avx_vnni", "avx2" or "baseline": whose instructions run. */
NGRAPH_API const char* ngraph_instruction_set(const ngraph_model* model);

/* Sets of shapes that the model was compiled for; 0 if it is for ranges alone. Names and elements of ports are the same in
 * all sets and ranges. */
NGRAPH_API size_t ngraph_shape_sets(const ngraph_model* model);
NGRAPH_API size_t ngraph_inputs(const ngraph_model* model);
NGRAPH_API size_t ngraph_outputs(const ngraph_model* model);

/* Null if there is no such set or port. */
NGRAPH_API const ngraph_port* ngraph_input(const ngraph_model* model, size_t shape_set, size_t number);
NGRAPH_API const ngraph_port* ngraph_output(const ngraph_model* model, size_t shape_set, size_t number);

/* Computes the outputs from the inputs: dense, row-major arrays of the ports' sizes, in any alignment that fits their
 * elements. None of the outputs may overlap another array. `threads`: at most so many work on it, this one among them;
 * 0: as many as there are cores; at most 1024, and a negative number is an NGRAPH_ERROR_ARGUMENT. The results do not depend
 * on it. After an error the outputs' content is undefined, and the model as good as before. */
NGRAPH_API ngraph_status ngraph_run(ngraph_model* model, size_t shape_set, const void* const* inputs,
                                    void* const* outputs, int threads);

/* Seeds a model that draws random numbers: what a call draws follows from the seed and the number of calls since, so that the
 * same calls give the same results. A loaded model has the seed 0; processes and models that must differ need other seeds, a
 * child of fork, too. Calls under way may have either seed. It does nothing for a model that draws none. */
NGRAPH_API ngraph_status ngraph_seed(ngraph_model* model, uint64_t seed);

/* To verify a machine with, what `--with-reference` added to the file: inputs for a set of shapes, and the outputs expected
 * from them, as arrays of the ports' sizes; `outputs` null if the file has none. The writer's instruction set computed the
 * outputs: others may round differently. Read from the mapped file at the first call: NGRAPH_ERROR_FORMAT where it is damaged,
 * which ngraph_load does not look at; the model runs nevertheless. */
NGRAPH_API ngraph_status ngraph_reference(ngraph_model* model, size_t shape_set, const void* const** inputs,
                                          const void* const** outputs);

/* ---- ranges of sizes ----
 * A model may be compiled for ranges of sizes, beside sets of shapes or without any. What runs inputs of given shapes is
 * bound once, in some microseconds to milliseconds, and then called as often as there are inputs of these shapes. */

/* An input or output of a range. Sizes are numbers, symbols, or what is computed of symbols, as "(H + 1)//2". */
typedef struct {
  const char* name;
  const char* element;
  size_t element_bytes;
  size_t rank;
  const char* const* sizes;
} ngraph_range_port;

/* What a symbol may be, both ends included. */
typedef struct {
  const char* name;
  int64_t low;
  int64_t high;
} ngraph_symbol;

/* What runs inputs of given shapes. */
typedef struct ngraph_bound ngraph_bound;

NGRAPH_API size_t ngraph_ranges(const ngraph_model* model);

/* Null if there is no such range, port or symbol. */
NGRAPH_API const ngraph_range_port* ngraph_range_input(const ngraph_model* model, size_t range, size_t number);
NGRAPH_API const ngraph_range_port* ngraph_range_output(const ngraph_model* model, size_t range, size_t number);
NGRAPH_API const ngraph_symbol* ngraph_range_symbol(const ngraph_model* model, size_t range, size_t number);

/* What else must hold of the sizes, for people: a line for each of the programs that the range has, of which one must hold,
 * conditions with commas between. An empty line is a program for all sizes. Null if there is no such range. */
NGRAPH_API const char* ngraph_range_guards(const ngraph_model* model, size_t range);

/* For a shape of `ranks[i]` sizes for each input i: a set of these shapes, if there is one, else what a range gives. The
 * model keeps the latest ones, so that the same shapes come back at once. If it fails, *bound is null; the text says which
 * size does not fit, and what would. */
NGRAPH_API ngraph_status ngraph_bind(ngraph_model* model, const int64_t* const* shapes, const size_t* ranks,
                                     ngraph_bound** bound);

/* No call of it may be under way. It may outlive its model. Null is allowed. */
NGRAPH_API void ngraph_unbind(ngraph_bound* bound);

/* Null if there is no such port. */
NGRAPH_API const ngraph_port* ngraph_bound_input(const ngraph_bound* bound, size_t number);
NGRAPH_API const ngraph_port* ngraph_bound_output(const ngraph_bound* bound, size_t number);

/* As ngraph_run. */
NGRAPH_API ngraph_status ngraph_run_bound(ngraph_bound* bound, const void* const* inputs, void* const* outputs,
                                          int threads);

#ifdef __cplusplus
}
#endif

#endif
