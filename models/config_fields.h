#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "models/config_reader.h"
#include "models/decoder_config.h"
#include "models/families.h"

namespace strait::models {

// Fields of config.json that several families share. What is read but not supported is refused with
// its key and value.

inline constexpr std::int64_t kLargestSize = 1 << 24;  // above any model; no product overflows

// The hub's own name of a size, or the other that its library accepts in its place.
std::int64_t read_size(const ConfigReader& reader, const std::string& field,
                       const std::string& other, std::int64_t absent);
Activation read_activation(const ConfigReader& reader, const std::string& field,
                           const std::string& absent);
// -1: none. Null means none, whatever the family's default for an absent field.
std::int64_t read_padding_token(const ConfigReader& reader, std::int64_t vocabulary,
                                std::int64_t absent);
// A cap of scores or logits; null means none (0).
double read_softcap(const ConfigReader& reader, const std::string& field, double absent);
// The width of a head where it is hidden / heads.
std::int64_t divided_width(const ConfigReader& reader, const std::string& heads_field,
                           std::int64_t hidden, std::int64_t heads);

struct RotaryDefaults {
  double theta = 10000;
  std::string theta_field = "rope_theta";  // at top level
  std::string share_field;                 // of a head that is rotated; empty: all
  double share = 1;
  // Phi-3's rule: it scales by longrope alone, which "yarn" and "su" mean as well, and has a
  // default of the original context, which nothing inside of rope_scaling overrides.
  std::optional<double> longrope_original;
};

// Reads rope_parameters (version 5 of transformers), rope_scaling and the fields beside it (version
// 4; rope_scaling replaces rope_parameters whole): types default, linear, dynamic, llama3, yarn and
// longrope. longrope shrinks `config.positions` to the original context; dynamic scales only rows
// beyond it. Longer rows would need angles that depend on the row's length. `group` is the layer
// type in a rope_parameters that has one object for each; empty: it has none.
std::shared_ptr<const Rotary> read_rotary(const ConfigReader& reader, DecoderConfig& config,
                                          const RotaryDefaults& defaults,
                                          const std::string& group = "");

Rotary plain_rotary(double theta, std::int64_t width);  // of `width` rotated values

// The fields of llama and its descendants, but windows. `family` holds what absent fields mean;
// key_heads and head_width of zero mean as many as heads, and hidden / heads.
DecoderConfig read_llama_fields(const ConfigReader& reader, DecoderConfig family);

// What GPT-2's and GPT-J's fields have in common, likewise.
DecoderConfig read_gpt2_fields(const ConfigReader& reader, DecoderConfig family);

// Gemma 2's and 3's fields, but caps, windows and angles.
DecoderConfig read_gemma_fields(const ConfigReader& reader, DecoderConfig family);

// Window and windowed blocks of families with layer_types; `windowed(block)` decides where that is
// absent. `absent` is the window of an absent field.
void read_windows(const ConfigReader& reader, DecoderConfig& config, std::int64_t absent,
                  const std::function<bool(std::int64_t block)>& windowed);
// Qwen 2's and 3's windows, which are off unless use_sliding_window says otherwise.
void read_qwen_window(const ConfigReader& reader, DecoderConfig& config);

// Names in files of llama and its descendants.
FileNames llama_file_names();

}  // namespace strait::models
