/* first_output MODEL: runs a model of one f32 input on 0, 1, 2, ... and prints its first output, also of C++ compilers. */
#include <ngraph_runtime.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** words) {
  ngraph_model* model;
  if (count != 2 || ngraph_load(words[1], &model) != NGRAPH_OK) {
    fprintf(stderr, "%s\n", ngraph_last_error());
    return 1;
  }
  const ngraph_port* in = ngraph_input(model, 0, 0);
  const ngraph_port* out = ngraph_output(model, 0, 0);
  float* const x = (float*)malloc(in->bytes);
  float* const y = (float*)malloc(out->bytes);
  const void* inputs[1];
  void* outputs[1];
  for (size_t i = 0; i < in->bytes / sizeof *x; ++i) x[i] = (float)i;
  inputs[0] = x;
  outputs[0] = y;
  if (ngraph_run(model, 0, inputs, outputs, 2) != NGRAPH_OK) {
    fprintf(stderr, "%s\n", ngraph_last_error());
    return 1;
  }
  for (size_t i = 0; i < out->bytes / sizeof *y; ++i) printf("%.9g\n", y[i]);
  free(x);
  free(y);
  ngraph_free(model);
  return 0;
}
