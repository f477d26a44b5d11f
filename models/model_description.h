#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t extent : shape) product *= extent;
    return product;
  }
  bool operator==(const TensorShape&) const = default;
};

// Frozen matrices of few bits.
struct Quantized {
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;           // that they are kept in
  std::int64_t largest_matrix = 0;  // values, of which one matrix at a time is dequantised
};

// What a layer has and costs. Nothing is allocated to know it.
struct LayerCost {
  std::string name;                  // "embedding", "block 3", "head"
  std::vector<TensorShape> tensors;  // its own, in the order of Model::parameters()
  std::int64_t parameters = 0;       // numbers in those
  std::int64_t trained = 0;          // of these
  Quantized quantized;
  double forward_flops_per_token = 0;  // in rows of the length asked for
  // Floating-point operations of the backward by those of the forward: 2 where weights have
  // gradients, 1 where only the input has one, 0 where nothing is trained up to here.
  double backward_factor = 2;
  bool backward_in_forward = false;          // of the head: fused with the loss
  std::int64_t saved_bytes_per_token = 0;    // kept from a training forward for its backward
  std::int64_t working_bytes_per_token = 0;  // beside that, while its backward runs
  // Of a block, what a split backward leaves for later: the weight gradients of its matrices, and
  // the inputs and gradients that these need. An input of several matrices counts for each.
  double weight_gradient_flops_per_token = 0;
  std::int64_t weight_gradient_bytes_per_token = 0;
  // Values per token that cross a boundary behind it; of the head, that its projection takes.
  std::int64_t output_width = 0;
  // A tensor of another layer that this one computes with too; not in `tensors`.
  std::string tied_to;
};

struct ModelDescription {
  std::string family;
  std::vector<LayerCost> layers;
  std::int64_t hidden = 0;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;  // longest row
  bool tied = false;
  bool tied_trained = false;         // so that the two sides exchange what a step changes
  std::int64_t tied_parameters = 0;  // of the table that embedding and head share

  std::int64_t parameters() const;           // a tied weight once
  std::int64_t trained_parameters() const;   // of these
  std::vector<TensorShape> tensors() const;  // all but adapters, in order: what a whole file holds
  std::vector<TensorShape> trained_tensors() const;
  // No layer before this one needs a backward.
  int first_trained_layer() const;
  // Of the loss of a micro-batch of so many tokens: a chunk of rows, which exists twice for a
  // moment.
  std::int64_t logits_bytes(std::int64_t tokens) const;
};

struct CostQuestion {
  std::int64_t row_length = 1024;
  std::int64_t bytes_per_value = 4;  // of an activation
};

// A pure function, for plans and partitions. Shapes, and what follows from them (parameters, weight
// gradients), come from the layers themselves, the rest from the family. ConfigError where the
// model's adapters do not fit it.
ModelDescription describe(const ModelConfig& config, const CostQuestion& question = {});

// ConfigError: a pattern of ranks or alphas fits no matrix of the description that has an adapter.
void check_pattern_use(const ModelDescription& model, const Lora& lora);

}  // namespace strait::models
