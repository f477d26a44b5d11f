#pragma once

#include "models/config_reader.h"
#include "models/decoder_config.h"
#include "models/families.h"

namespace strait::models {

// Fields of config.json that several families share. A field that is read but has an unsupported
// value is refused with its key and value.

// above any model, and products do not overflow
inline constexpr std::int64_t kLargestSize = 1 << 24;

// Reads a size by its name on the hub, or by the other name that the hub's library accepts.
std::int64_t read_size(const ConfigReader& reader, const std::string& field,
                       const std::string& other, std::int64_t absent);
Activation read_activation(const ConfigReader& reader, const std::string& field,
                           const std::string& absent);
// -1: there is none. Null means none, whatever the family's default for an absent field.
std::int64_t read_padding_token(const ConfigReader& reader, std::int64_t vocabulary,
                                std::int64_t absent);
// A cap of scores or logits. Null means none (0).
double read_softcap(const ConfigReader& reader, const std::string& field, double absent);
// The width of a head if it is hidden / heads.
std::int64_t divided_width(const ConfigReader& reader, const std::string& heads_field,
                           std::int64_t hidden, std::int64_t heads);

struct RotaryDefaults {
  double theta = 10000;
  std::string theta_field = "rope_theta";  // at top level; empty: none
  std::string share_field;                 // share of a head that is rotated; empty: all of it
  double share = 1;
  // Phi-3's rule: it scales by longrope only, which "yarn" and "su" name as well. It has a default
  // for the original context, which nothing inside rope_scaling overrides.
  std::optional<double> longrope_original;
};

// Reads rope_parameters (version 5 of transformers) or rope_scaling and its sibling fields (version
// 4); rope_scaling replaces all of rope_parameters. Types: default, linear, dynamic, llama3, yarn
// and longrope. longrope shrinks `config.positions` to the original context; dynamic scales only
// longer rows. Longer rows would need angles that depend on the row's length. `group`: the layer
// type, if rope_parameters has one object per type; else empty.
std::shared_ptr<const Rotary> read_rotary(const ConfigReader& reader, DecoderConfig& config,
                                          const RotaryDefaults& defaults,
                                          const std::string& group = "");

Rotary plain_rotary(double theta, std::int64_t width);  // of `width` rotated values

// What scores are multiplied by in addition, if scaled angles have an mscale_all_dim.
double yarn_score_factor(const ConfigReader& reader);
// From rope_parameters, which must not be absent.
void read_query_growth(const ConfigReader& reader, DecoderConfig& config);

// The fields of llama and its descendants, except windows. `family` holds the values of absent
// fields; key_heads = 0 means as many as heads, and head_width = 0 means hidden / heads.
DecoderConfig read_llama_fields(const ConfigReader& reader, DecoderConfig family);

// Biases of all four matrices of attention, which one field turns on or off.
void read_attention_bias(const ConfigReader& reader, DecoderConfig& config, bool absent = false);

// The fields that GPT-2 and GPT-J share. `family` holds the values of absent fields.
DecoderConfig read_gpt2_fields(const ConfigReader& reader, DecoderConfig family);

// The fields of Gemma 2 and 3, except caps, windows and angles.
DecoderConfig read_gemma_fields(const ConfigReader& reader, DecoderConfig family);

// The blocks of this type in layer_types, which has full_attention besides; if that is absent,
// `absent(block)` decides.
std::vector<bool> read_layer_types(const ConfigReader& reader, const DecoderConfig& config,
                                   const std::string& type,
                                   const std::function<bool(std::int64_t block)>& absent);
// The window of all blocks, in families whose library ignores layer_types. `absent`: the window if
// its field is absent; 0: none.
void read_window(const ConfigReader& reader, DecoderConfig& config, std::int64_t absent);
// Window and windowed blocks of families with layer_types; if that is absent, `windowed(block)`
// decides.
void read_windows(const ConfigReader& reader, DecoderConfig& config, std::int64_t absent,
                  const std::function<bool(std::int64_t block)>& windowed);
// The windows of Qwen 2 and 3, which are off unless use_sliding_window turns them on.
void read_qwen_window(const ConfigReader& reader, DecoderConfig& config);

// The fields of experts that families share. `family`: the values of absent fields.
ExpertOptions read_experts(const ConfigReader& reader, const std::string& count_field,
                           const std::string& inner_field, ExpertOptions family);
// Makes these blocks sparse.
void set_sparse(DecoderConfig& config, const std::function<bool(std::int64_t block)>& sparse);

// Names in the files of llama and its descendants.
FileNames llama_file_names();

}  // namespace strait::models
