/* Stands in for libngraph_runtime.so in the tests of the Python package: it has the C interface, and models that are
 * chosen by the first word of the file. "twice reference 0.5" has references whose first output is wrong by that. */
#define _POSIX_C_SOURCE 199309L /* nanosleep */
#include "ngraph_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_SETS = 2, MOST_PORTS = 5 };

struct ngraph_model {
  const char* word;
  const char* metadata;
  size_t sets, ranges, inputs, outputs;
  int has_references;
  float error, x[12], expected[12];
  double total;
  const void *reference_in[1], *reference_out[2];
  ngraph_port in[MOST_SETS][MOST_PORTS], out[MOST_SETS][MOST_PORTS];
  ngraph_status (*run)(const ngraph_model*, size_t, const void* const*, void* const*, int);
};

/* What runs `data` of `rows` times 3 of the model "ranged". */
struct ngraph_bound {
  ngraph_model model;
  int64_t shape[2];
};

static const int64_t kTwo[] = {2}, kOne[] = {1}, k2x3[] = {2, 3}, k4x3[] = {4, 3}, kImage[] = {1, 3, 2, 2};
static _Thread_local const char* last_error = "";
static int live_models = 0, live_bound = 0;

static ngraph_status fail(ngraph_status status, const char* text) {
  last_error = text;
  return status;
}

static size_t count(const ngraph_port* port) { return port->bytes / port->element_bytes; }

/* twice = 2 * data; total = the sum of data */
static ngraph_status twice(const ngraph_model* model, size_t set, const void* const* in, void* const* out, int threads) {
  const float* const data = in[0];
  double total = 0;
  (void)threads;
  for (size_t i = 0; i < count(&model->in[set][0]); ++i) {
    ((float*)out[0])[i] = 2 * data[i];
    total += data[i];
  }
  if (model->outputs > 1) memcpy(out[1], &total, sizeof total);
  return NGRAPH_OK;
}

/* Each output is a copy of the input at its place. */
static ngraph_status copies(const ngraph_model* model, size_t set, const void* const* in, void* const* out, int threads) {
  (void)threads;
  for (size_t i = 0; i < model->inputs; ++i) memcpy(out[i], in[i], model->in[set][i].bytes);
  return NGRAPH_OK;
}

/* Sleeps for x[0] ms and returns the status x[1]; told: the input's address and the number of threads. */
static ngraph_status probe(const ngraph_model* model, size_t set, const void* const* in, void* const* out, int threads) {
  const float* const x = in[0];
  const struct timespec pause = {0, (long)(x[0] * 1e6f)};
  const int64_t told[] = {(int64_t)(intptr_t)x, threads};
  (void)model, (void)set;
  nanosleep(&pause, NULL);
  memcpy(out[0], told, sizeof told);
  return x[1] == 0 ? NGRAPH_OK : fail((ngraph_status)(int)x[1], "step 3 of probe failed");
}

static ngraph_port port(const char* name, const char* element, size_t bytes, size_t rank, const int64_t* shape) {
  ngraph_port made = {name, element, bytes, rank, shape, bytes};
  for (size_t i = 0; i < rank; ++i) made.bytes *= (size_t)shape[i];
  return made;
}

static int make(ngraph_model* m, const char* word) {
  static const char* const kElements[] = {"bool", "i64", "u8", "f16", "bf16"};
  static const size_t kBytes[] = {1, 8, 1, 2, 2};
  memset(m, 0, sizeof *m);
  m->metadata = "{\"name\": \"fake\", \"made_by\": \"ngraph_mxnet 0.0\", \"metadata\": {\"labels\": \"\\u00e4, b\"}, "
                "\"precision\": \"f32\"}";
  m->sets = 1;
  m->inputs = 1;
  m->outputs = 1;
  if (strcmp(word, "twice") == 0) {
    m->sets = 2;
    m->outputs = 2;
    for (size_t set = 0; set < 2; ++set) {
      m->in[set][0] = port("data", "f32", 4, 2, set ? k4x3 : k2x3);
      m->out[set][0] = port("twice", "f32", 4, 2, set ? k4x3 : k2x3);
      m->out[set][1] = port("a/total", "f64", 8, 0, NULL);
    }
    m->run = twice;
  } else if (strcmp(word, "ranged") == 0) { /* for 1 to 100 rows; for 2 there is a set of shapes, too */
    m->ranges = 1;
    m->in[0][0] = port("data", "f32", 4, 2, k2x3);
    m->out[0][0] = port("twice", "f32", 4, 2, k2x3);
    m->run = twice;
  } else if (strcmp(word, "range") == 0) { /* and nothing else */
    m->ranges = 1;
    m->sets = 0;
    m->run = twice;
  } else if (strcmp(word, "single") == 0) {
    m->in[0][0] = port("data", "f32", 4, 2, k2x3);
    m->out[0][0] = port("twice", "f32", 4, 2, k2x3);
    m->run = twice;
  } else if (strcmp(word, "pairs") == 0) { /* both inputs have two shapes, but not in all combinations */
    m->sets = m->inputs = m->outputs = 2;
    for (size_t set = 0; set < 2; ++set) {
      m->in[set][0] = m->out[set][0] = port("left", "f32", 4, 1, set ? kTwo : kOne);
      m->in[set][1] = m->out[set][1] = port("right", "f32", 4, 1, set ? kTwo : kOne);
    }
    m->run = copies;
  } else if (strcmp(word, "types") == 0) {
    m->inputs = m->outputs = MOST_PORTS;
    for (size_t i = 0; i < MOST_PORTS; ++i)
      m->in[0][i] = m->out[0][i] = port(kElements[i], kElements[i], kBytes[i], 1, kTwo);
    m->run = copies;
  } else if (strcmp(word, "image") == 0) {
    m->in[0][0] = port("image", "f32", 4, 4, kImage);
    m->out[0][0] = port("scores", "f32", 4, 4, kImage);
    m->run = copies;
  } else if (strcmp(word, "probe") == 0) {
    m->in[0][0] = port("x", "f32", 4, 1, kTwo);
    m->out[0][0] = port("told", "i64", 8, 1, kTwo);
    m->run = probe;
  } else if (strcmp(word, "newer") == 0) {
    m->in[0][0] = m->out[0][0] = port("x", "i4", 1, 1, kTwo);
    m->run = copies;
  } else if (strcmp(word, "no-json") == 0 || strcmp(word, "deep-json") == 0) {
    static char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    m->metadata = strcmp(word, "no-json") == 0 ? "[1" : deep;
    m->in[0][0] = m->out[0][0] = port("x", "f32", 4, 1, kTwo);
    m->run = copies;
  } else {
    return 0;
  }
  return 1;
}

const char* ngraph_runtime_version(void) { return "0.0-fake"; }
int ngraph_runtime_abi(void) { return getenv("FAKE_ABI") ? atoi(getenv("FAKE_ABI")) : NGRAPH_RUNTIME_ABI; }
const char* ngraph_last_error(void) { return last_error; }
int fake_live_bound(void) { return __atomic_load_n(&live_bound, __ATOMIC_SEQ_CST); }
int fake_live_models(void) { return __atomic_load_n(&live_models, __ATOMIC_SEQ_CST); }

ngraph_status ngraph_load(const char* path, ngraph_model** model) {
  char word[16] = "", further[16] = "";
  float error = 0;
  FILE* const file = fopen(path, "rb");
  if (!file) return fail(NGRAPH_ERROR_FILE, "no such file");
  const int words = fscanf(file, "%15s %15s %f", word, further, &error), found = words > 0;
  fclose(file);
  if (found && strcmp(word, "other-cpu") == 0) return fail(NGRAPH_ERROR_CPU, "it has nothing that this CPU runs");
  ngraph_model* const made = malloc(sizeof *made);
  if (!made) return fail(NGRAPH_ERROR_MEMORY, "no memory");
  if (!found || !make(made, word)) {
    free(made);
    return fail(NGRAPH_ERROR_FORMAT, "it is no compiled model");
  }
  made->has_references = words == 3 && strcmp(further, "reference") == 0;
  made->error = error;
  __atomic_add_fetch(&live_models, 1, __ATOMIC_SEQ_CST);
  *model = made;
  return NGRAPH_OK;
}

void ngraph_free(ngraph_model* model) {
  if (model) __atomic_sub_fetch(&live_models, 1, __ATOMIC_SEQ_CST);
  free(model);
}

const char* ngraph_metadata(const ngraph_model* model) { return model->metadata; }
const char* ngraph_instruction_set(const ngraph_model* model) { return model ? "baseline" : NULL; }
size_t ngraph_shape_sets(const ngraph_model* model) { return model->sets; }
size_t ngraph_inputs(const ngraph_model* model) { return model->inputs; }
size_t ngraph_outputs(const ngraph_model* model) { return model->outputs; }

const ngraph_port* ngraph_input(const ngraph_model* model, size_t set, size_t number) {
  return set < model->sets && number < model->inputs ? &model->in[set][number] : NULL;
}

const ngraph_port* ngraph_output(const ngraph_model* model, size_t set, size_t number) {
  return set < model->sets && number < model->outputs ? &model->out[set][number] : NULL;
}

ngraph_status ngraph_run(ngraph_model* model, size_t set, const void* const* inputs, void* const* outputs, int threads) {
  if (set >= model->sets) return fail(NGRAPH_ERROR_ARGUMENT, "there is no such set of shapes");
  return model->run(model, set, inputs, outputs, threads);
}

/* It draws nothing. */
ngraph_status ngraph_seed(ngraph_model* m, uint64_t seed) {
  (void)seed;
  return m == NULL ? NGRAPH_ERROR_ARGUMENT : NGRAPH_OK;
}

/* From -1 to 1, in equal steps; of the model `twice`. */
ngraph_status ngraph_reference(ngraph_model* m, size_t set, const void* const** inputs, const void* const** outputs) {
  if (set >= m->sets) return fail(NGRAPH_ERROR_ARGUMENT, "there is no such set of shapes");
  *inputs = *outputs = NULL;
  if (!m->has_references) return NGRAPH_OK;
  const size_t elements = count(&m->in[set][0]);
  m->total = 0;
  for (size_t i = 0; i < elements; ++i) {
    m->x[i] = -1 + 2 * (float)i / (float)(elements - 1);
    m->expected[i] = 2 * m->x[i] + m->error;
    m->total += m->x[i];
  }
  m->reference_in[0] = m->x;
  m->reference_out[0] = m->expected;
  m->reference_out[1] = &m->total;
  *inputs = m->reference_in;
  *outputs = m->reference_out;
  return NGRAPH_OK;
}

static const char* const kSizes[] = {"N", "3"};
static const ngraph_range_port kRangeIn = {"data", "f32", 4, 2, kSizes}, kRangeOut = {"twice", "f32", 4, 2, kSizes};
static const ngraph_symbol kRows = {"N", 1, 100};

size_t ngraph_ranges(const ngraph_model* model) { return model->ranges; }

const ngraph_range_port* ngraph_range_input(const ngraph_model* model, size_t range, size_t number) {
  return range < model->ranges && number == 0 ? &kRangeIn : NULL;
}

const ngraph_range_port* ngraph_range_output(const ngraph_model* model, size_t range, size_t number) {
  return range < model->ranges && number == 0 ? &kRangeOut : NULL;
}

const ngraph_symbol* ngraph_range_symbol(const ngraph_model* model, size_t range, size_t number) {
  return range < model->ranges && number == 0 ? &kRows : NULL;
}

const char* ngraph_range_guards(const ngraph_model* model, size_t range) {
  return range < model->ranges ? "N != 7" : NULL;
}

ngraph_status ngraph_bind(ngraph_model* model, const int64_t* const* shapes, const size_t* ranks, ngraph_bound** bound) {
  *bound = NULL;
  if (ranks[0] != 2 || shapes[0][1] != 3 || shapes[0][0] < 1 || shapes[0][0] > 100)
    return fail(NGRAPH_ERROR_ARGUMENT, "input data: found another shape, expected [N,3] with N 1..100");
  if (shapes[0][0] == 7) return fail(NGRAPH_ERROR_ARGUMENT, "found data [7,3], expected N != 7");
  ngraph_bound* const made = malloc(sizeof *made);
  if (!made) return fail(NGRAPH_ERROR_MEMORY, "no memory");
  made->model = *model;
  memcpy(made->shape, shapes[0], sizeof made->shape);
  made->model.in[0][0] = port("data", "f32", 4, 2, made->shape);
  made->model.out[0][0] = port("twice", "f32", 4, 2, made->shape);
  __atomic_add_fetch(&live_bound, 1, __ATOMIC_SEQ_CST);
  *bound = made;
  return NGRAPH_OK;
}

void ngraph_unbind(ngraph_bound* bound) {
  if (bound) __atomic_sub_fetch(&live_bound, 1, __ATOMIC_SEQ_CST);
  free(bound);
}

const ngraph_port* ngraph_bound_input(const ngraph_bound* bound, size_t number) {
  return number == 0 ? &bound->model.in[0][0] : NULL;
}

const ngraph_port* ngraph_bound_output(const ngraph_bound* bound, size_t number) {
  return number == 0 ? &bound->model.out[0][0] : NULL;
}

ngraph_status ngraph_run_bound(ngraph_bound* bound, const void* const* inputs, void* const* outputs, int threads) {
  return bound->model.run(&bound->model, 0, inputs, outputs, threads);
}
