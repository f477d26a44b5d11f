#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/matrix_format.h"
#include "models/config_error.h"

namespace strait::models {

// Low-rank adapters, as an adapter_config.json of PEFT describes them. All parameters of the model
// itself are frozen except in the modules in `saved`.
struct Lora {
  std::int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;            // of the adapters' input
  bool rank_stabilized = false;  // scaled by alpha / sqrt(rank), not by alpha / rank
  bool decomposed = false;  // DoRA: the norms of the matrix's outputs are trained by themselves
  // Matrices, by the last parts of their names. Empty: selected by pattern.
  std::vector<std::string> targets;
  std::string pattern;  // a regular expression for whole names; also empty: all matrices
  // Tensors of all experts of a block, by the last parts of their names. Of experts nothing else
  // has adapters then.
  std::vector<std::string> parameters;
  std::map<std::string, std::int64_t> ranks;  // by pattern of the end of a name
  std::map<std::string, double> alphas;       // by pattern of the end of a name
  std::vector<std::int64_t> blocks;           // only these blocks; empty: all
  // modules that are trained completely, by last parts of their names
  std::vector<std::string> saved;
  // Format of the frozen matrices of blocks. Nullopt: the model's type. Not part of PEFT's file.
  std::optional<kernels::MatrixFormat> quantization = std::nullopt;

  bool operator==(const Lora&) const = default;
};

// "q_proj" and "self_attn.q_proj" are last parts of "layers.0.self_attn.q_proj", "proj" is not.
bool ends_with_module(const std::string& name, const std::string& part);

// "….experts.up_proj", the tensor of all experts that "….experts.7.up_proj" is a part of. Empty:
// the matrix is not of an expert.
std::string tensor_of_experts(const std::string& matrix);

// The adapter of one matrix.
struct AdapterShape {
  std::int64_t rank = 0;
  double scale = 1;
  double dropout = 0;
  bool decomposed = false;
};

// A pattern that no matrix has: PEFT's empty list of targets.
inline constexpr const char* kNoMatrix = "none";

// The adapter of this matrix ("model.layers.0.self_attn.q_proj"). Nullopt: it has none. Not for the
// language model's head.
std::optional<AdapterShape> adapter_of(const Lora& lora, const std::string& matrix);

// ConfigError: two patterns give one of these matrices different ranks or alphas.
void check_patterns(const Lora& lora, const std::vector<std::string>& matrices);

// The patterns of ranks and alphas that match none of these matrices: `rank_pattern "q_prj"`.
std::vector<std::string> unused_patterns(const Lora& lora,
                                         const std::vector<std::string>& matrices);

// Whether the parameters of this module are trained directly, without adapters.
bool is_saved_module(const Lora& lora, const std::string& module);

// Whether the backward of one of these matrices needs their common input. A frozen matrix does not,
// and an adapter with dropout keeps its own copy.
bool keeps_input(const Lora* lora, const std::string& prefix,
                 std::initializer_list<std::string> names);

// Parses the text of an adapter_config.json. ConfigError: a method other than LoRA, or an
// unsupported setting, with its name and value. The initialisation of weights is ignored, except
// for methods that change the base.
Lora parse_lora(std::string_view text, const std::string& file);

// The text of that file for PEFT. `base`: the model that the adapters belong to. `input_first`: its
// matrices are stored as [in, out]. With `blocks`, `targets` must not be empty, because PEFT
// refuses a pattern together with block numbers. See lora_for_peft().
std::string lora_text(const Lora& lora, const std::string& base, bool input_first);

// The name of an adapter's tensor is the name of the matrix and one of these.
inline constexpr const char* kAdapterDown = ".lora_A.weight";           // [rank, in]
inline constexpr const char* kAdapterUp = ".lora_B.weight";             // [out, rank]
inline constexpr const char* kAdapterNorms = ".lora_magnitude_vector";  // [out], of DoRA

}  // namespace strait::models
