#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/matrix_format.h"
#include "models/config_error.h"

namespace strait::models {

// Low-rank adapters, as an adapter_config.json of PEFT describes them. Every parameter of the model
// itself is frozen, but for those of `saved`.
struct Lora {
  std::int64_t rank = 8;
  double alpha = 16;
  double dropout = 0;            // of the adapters' input
  bool rank_stabilized = false;  // scaled by alpha / sqrt(rank), not by alpha / rank
  // Matrices, by the last parts of their names; empty: by pattern.
  std::vector<std::string> targets;
  std::string pattern;  // a regular expression of whole names; empty, too: all matrices
  std::map<std::string, std::int64_t> ranks;  // for names that end as this pattern says
  std::map<std::string, double> alphas;       // likewise
  std::vector<std::int64_t> blocks;           // only in these; empty: in all
  std::vector<std::string> saved;             // modules that are trained whole, by last parts
  // How frozen matrices of blocks are kept; nullopt: in the model's type. Not of PEFT's file.
  std::optional<kernels::MatrixFormat> quantization = std::nullopt;

  bool operator==(const Lora&) const = default;
};

// "q_proj" and "self_attn.q_proj" are last parts of "layers.0.self_attn.q_proj", "proj" is not.
bool ends_with_module(const std::string& name, const std::string& part);

// The adapter of one matrix.
struct AdapterShape {
  std::int64_t rank = 0;
  double scale = 1;
  double dropout = 0;
};

// The adapter of this matrix ("model.layers.0.self_attn.q_proj"); nullopt: it has none. Not for the
// language model's head.
std::optional<AdapterShape> adapter_of(const Lora& lora, const std::string& matrix);

// ConfigError where two patterns give one of these matrices different ranks or alphas.
void check_patterns(const Lora& lora, const std::vector<std::string>& matrices);

// The patterns of ranks and alphas that fit none of these matrices: `rank_pattern "q_prj"`.
std::vector<std::string> unused_patterns(const Lora& lora,
                                         const std::vector<std::string>& matrices);

// Whether the parameters of this module are trained as they are.
bool is_saved_module(const Lora& lora, const std::string& module);

// The text of an adapter_config.json. ConfigError: another method than LoRA, or a setting of it
// that is not supported, with its name and value. How weights were initialised is ignored, except
// by methods that change the base.
Lora parse_lora(std::string_view text, const std::string& file);

// The same file for PEFT. `base` is the model that the adapters belong to; `input_first`: its
// matrices are stored as [in, out]. With `blocks`, `targets` is not empty: PEFT refuses a pattern
// of names together with numbers of blocks. See lora_for_peft().
std::string lora_text(const Lora& lora, const std::string& base, bool input_first);

// Name of an adapter's tensors: the matrix and one of these.
inline constexpr const char* kAdapterDown = ".lora_A.weight";  // [rank, in]
inline constexpr const char* kAdapterUp = ".lora_B.weight";    // [out, rank]

}  // namespace strait::models
