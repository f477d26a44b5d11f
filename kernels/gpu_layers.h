#pragma once

#include "kernels/group_format.h"

namespace strait::kernels {

// Norms, gated MLPs, rotary embeddings and the loss on a GPU, each in one pass over memory instead
// of one per operator. Values are float32 or bfloat16, and are rounded where libtorch's operators
// round them. The order of sums depends only on shapes. Calls queue work on `stream`, a
// cudaStream_t, and return. Pointers are GPU memory, best at multiples of 16 bytes. The callers are
// the .cpp files of the same names, which check shapes.

// Rows [rows, width] that are normalised; contiguous.
struct NormShape {
  Element element = Element::float32;
  std::int64_t rows = 0;
  std::int64_t width = 0;  // at most kMostNormWidth
  float epsilon = 0;
  bool one_plus_weight = false;
};
inline constexpr std::int64_t kMostNormWidth = 16384;

// activation(gate) · up, both [rows, width] with a row stride, which also holds for their
// gradients; the product is contiguous.
enum class Activation : std::uint8_t { gelu_erf, gelu_tanh, relu, silu };
struct GatedShape {
  Element element = Element::float32;
  Activation activation = Activation::silu;
  std::int64_t rows = 0;
  std::int64_t width = 0;  // a multiple of 8; so is the stride
  std::int64_t stride = 0;
};

// Heads [tokens, heads, width]; the first 2 · half values of each are rotated. Tables are [tokens,
// half]. The result is contiguous.
struct HeadShape {
  Element element = Element::float32;  // also of the tables
  bool neighbours = false;             // see RotaryPairs
  bool inverse = false;
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t width = 0;  // a multiple of 8; so are half and strides
  std::int64_t half = 0;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};

struct LogitShape {
  Element element = Element::float32;
  std::int64_t rows = 0;
  std::int64_t vocabulary = 0;
};

namespace cuda {

// Stores 1 / √(mean square + epsilon) of each row in `scales`.
void rms_norm(void* stream, const NormShape& shape, const void* input, const void* weight,
              float* scales, void* output);
// `weight_sums` is [norm_sum_rows(), width]: the sums of its columns are the weight's gradient.
// Null: not computed.
std::int64_t norm_sum_rows(const NormShape& shape);
void rms_norm_gradient(void* stream, const NormShape& shape, const void* input, const void* weight,
                       const float* scales, const void* slope, void* input_gradient,
                       float* weight_sums);

void gated_product(void* stream, const GatedShape& shape, const void* gate, const void* up,
                   void* product);
void gated_product_gradient(void* stream, const GatedShape& shape, const void* gate, const void* up,
                            const void* slope, void* gate_gradient, void* up_gradient);

void rotate_heads(void* stream, const HeadShape& shape, const void* heads, const void* cosine,
                  const void* sine, void* rotated);

// The log probabilities of the targets. `slopes`: the gradients of the logits, which are the
// probabilities, minus one for the target; may be the memory of the logits. Null: not computed.
void cross_entropy(void* stream, const LogitShape& shape, const void* logits,
                   const std::int64_t* targets, float* log_probabilities, void* slopes);

}  // namespace cuda
}  // namespace strait::kernels
