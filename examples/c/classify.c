/* Classifies an image with a compiled model, without Python:
 *     classify model.ngraph image.ppm
 * The model takes one image of floats, [1,3,height,width], normalised as networks of ImageNet want it; the image is a
 * binary PPM (P6) of the same size, without comments: convert photo.jpg -resize 224x224! image.ppm */
#include <math.h>
#include <ngraph_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char* what, const char* why) {
  fprintf(stderr, "error: %s: %s\n", what, why);
  return 1;
}

/* Reads rows of RGB bytes as planes of normalised floats. */
static int read_image(const char* path, float* planes, int height, int width) {
  static const float kMean[] = {0.485f, 0.456f, 0.406f}, kDeviation[] = {0.229f, 0.224f, 0.225f};
  const size_t pixels = (size_t)height * (size_t)width;
  int found_width = 0, found_height = 0, most = 0;
  FILE* const file = fopen(path, "rb");
  if (!file) return fail(path, "can't be opened");
  unsigned char* const bytes = malloc(3 * pixels);
  const int fits = fscanf(file, "P6 %d %d %d", &found_width, &found_height, &most) == 3 && fgetc(file) != EOF &&
                   found_width == width && found_height == height && most == 255;
  const int whole = fits && bytes && fread(bytes, 3, pixels, file) == pixels;
  fclose(file);
  for (size_t i = 0; whole && i < 3 * pixels; ++i)
    planes[i % 3 * pixels + i / 3] = ((float)bytes[i] / 255 - kMean[i % 3]) / kDeviation[i % 3];
  free(bytes);
  return whole ? 0 : fail(path, fits ? "is cut off" : "is no P6 image of the model's size with 255 levels");
}

int main(int count, char** arguments) {
  ngraph_model* model = NULL;
  if (count != 3) return fail("usage", "classify model.ngraph image.ppm");
  if (ngraph_load(arguments[1], &model) != NGRAPH_OK) return fail(arguments[1], ngraph_last_error());
  const ngraph_port* const in = ngraph_input(model, 0, 0);
  const ngraph_port* const out = ngraph_output(model, 0, 0);
  if (ngraph_inputs(model) != 1 || ngraph_outputs(model) != 1 || in->rank != 4 || in->shape[0] != 1 ||
      in->shape[1] != 3 || strcmp(in->element, "f32") != 0 || strcmp(out->element, "f32") != 0)
    return fail(arguments[1], "takes no single image of floats");
  float* const image = malloc(in->bytes);
  float* const scores = malloc(out->bytes);
  if (!image || !scores) return fail(arguments[1], "no memory");
  if (read_image(arguments[2], image, (int)in->shape[2], (int)in->shape[3])) return 1;
  const void* const inputs[] = {image};
  void* const outputs[] = {scores};
  if (ngraph_run(model, 0, inputs, outputs, 0) != NGRAPH_OK) return fail("run", ngraph_last_error());
  const size_t classes = out->bytes / sizeof *scores;
  for (size_t rank = 0; rank < 5 && rank < classes; ++rank) {
    size_t best = 0;
    for (size_t i = 1; i < classes; ++i) best = scores[i] > scores[best] ? i : best;
    printf("%zu\t%g\n", best, scores[best]);
    scores[best] = -INFINITY; /* so that the next round finds the next one */
  }
  free(scores), free(image), ngraph_free(model);
  return 0;
}
