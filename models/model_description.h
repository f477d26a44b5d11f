#pragma once

#include "models/cache_format.h"
#include "models/model_config.h"

namespace strait::models {

// Layer indices are global: 0 is the embedding, 1 to n the blocks, n + 1 the head (final norm and
// projection).
struct LayerRange {
  int first = 0;
  int last = -1;  // inclusive
};

struct TensorShape {
  std::string name;
  std::vector<std::int64_t> shape;
  bool trained = true;                                               // as in Parameter
  bool adapter = false;                                              // as in Parameter
  std::optional<kernels::MatrixFormat> quantization = std::nullopt;  // of Parameter::quantized
  double token_share = 1;                                            // as in Parameter
  bool wide = false;  // float32, whatever the type of the others

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) product *= extent;
    return product;
  }
  bool operator==(const TensorShape&) const = default;
};

// Frozen matrices in a quantised format.
struct Quantized {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;  // in the quantised format
  // values of the largest matrix; one matrix at a time is dequantised
  std::int64_t largest_matrix = 0;
};

// Contents and costs of a layer. Nothing is allocated to compute them.
struct LayerCost {
  std::string name;                  // "embedding", "block 3", "head"
  std::vector<TensorShape> tensors;  // owned, in the order of Model::parameters()
  std::int64_t parameters = 0;       // number of values in them
  std::int64_t trained = 0;          // number of trained values
  Quantized quantized;
  double forward_flops_per_token = 0;  // for rows of the length in the question
  // Operations of the backward relative to the forward: 2 if weights have gradients, 1 if only the
  // input has one, 0 if no layer up to here is trained.
  double backward_factor = 2;
  bool backward_in_forward = false;          // of the head: fused with the loss
  std::int64_t saved_bytes_per_token = 0;    // kept from a training forward for its backward
  std::int64_t working_bytes_per_token = 0;  // additional bytes while its backward runs
  // In a block, the work that a split backward delays: the weight gradients of its matrices, with
  // the inputs and gradients that they need. The input of several matrices counts once for each.
  double weight_gradient_flops_per_token = 0;
  std::int64_t weight_gradient_bytes_per_token = 0;
  CachedToken cached;                // in a generation, without states of recurrent layers
  std::int64_t attended_values = 0;  // of a token's keys and values as attention takes them
  // Values per token that cross a boundary after this layer. For the head: values that its
  // projection takes.
  std::int64_t output_width = 0;
  // A tensor of another layer that this layer also uses. Not in `tensors`.
  std::string tied_to;
};

struct ModelDescription {
  std::string family;
  std::vector<LayerCost> layers;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;  // longest row
  bool tied = false;
  bool tied_trained = false;  // the two sides exchange what a step changes
  // Why a row is trained whole, as a clause. Empty: it may be trained in slices, because tokens
  // meet in models::attend() only, which keeps the keys and values of earlier slices. A family says
  // so.
  std::string trains_whole_rows =
      "its family does not say that tokens meet in models::attend() only";
  std::int64_t tied_parameters = 0;  // of the table that embedding and head share

  std::int64_t parameters() const;          // counts a tied weight once
  std::int64_t trained_parameters() const;  // the trained part
  // without adapters, in order: the tensors of a complete file
  std::vector<TensorShape> tensors() const;
  std::vector<TensorShape> trained_tensors() const;
  // No layer before this one runs a backward.
  int first_trained_layer() const;
  // Keys and values of a token in a generation, of all layers.
  std::int64_t cached_bytes(CacheFormat format) const;
  // Logits of a micro-batch of this number of tokens. They are computed for one chunk of rows at a
  // time, which briefly exists twice.
  std::int64_t logits_bytes(std::int64_t tokens) const;
};

struct CostQuestion {
  std::int64_t row_length = 1024;
  std::int64_t bytes_per_value = 4;  // of an activation
  bool on_cpu = false;               // all layers are on a CPU
};

// Describes a model for plans and partitions. Pure. Shapes, and what follows from them (parameters,
// weight gradients), come from the layers themselves; the rest comes from the family. ConfigError:
// the model's adapters do not fit it.
ModelDescription describe(const ModelConfig& config, const CostQuestion& question = {});

// ConfigError: a pattern of ranks or alphas fits no matrix of the description that has an adapter.
void check_pattern_use(const ModelDescription& model, const Lora& lora);

}  // namespace strait::models
