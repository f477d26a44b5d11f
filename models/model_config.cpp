#include "models/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/config_reader.h"
#include "models/decoder_config.h"
#include "models/families.h"

namespace strait::models {

namespace {

// Above any model. Limits the layers that are made one by one, and keeps counts of bytes and
// operations inside 64 bits.
constexpr std::int64_t kMostBlocks = 4096;
constexpr double kMostParameters = 1e15;

void check_size(const DecoderConfig& config, const std::string& file) {
  if (config.blocks > kMostBlocks) {
    throw ConfigError(
        fmt::format("{}: {} blocks, expected at most {}", file, config.blocks, kMostBlocks));
  }
  const auto hidden = static_cast<double>(config.hidden);
  const double attention =
      4.0 * static_cast<double>(config.heads) * static_cast<double>(config.head_width);
  const double experts =
      static_cast<double>(config.experts.count) * static_cast<double>(config.experts.inner) +
      static_cast<double>(config.experts.shared_inner);
  const DeltaOptions& delta = config.recurrent;
  const double recurrent =
      2.0 * static_cast<double>(delta.key_heads) * static_cast<double>(delta.key_width) +
      3.0 * static_cast<double>(delta.heads) * static_cast<double>(delta.width);
  const double block =
      hidden * (attention + recurrent + 3.0 * static_cast<double>(config.inner) + 3 * experts);
  const double tables = hidden * static_cast<double>(config.vocabulary + config.positions);
  const double all = static_cast<double>(config.blocks) * block + 2 * tables;
  if (all <= kMostParameters) return;
  throw ConfigError(
      fmt::format("{}: sizes of a model with about {:.0e} parameters, expected at "
                  "most {:.0e}",
                  file, all, kMostParameters));
}

}  // namespace

ModelConfig parse_config(std::string_view text, const std::string& file) {
  const ConfigReader reader(text, file);
  const std::string type = reader.string("model_type", "");
  const Family* const family = families().find(type);
  const bool reads_four_bits = family != nullptr && family->names.reads_mxfp4;
  if (reader.has("quantization_config") &&
      !(reads_four_bits &&
        reader.object("quantization_config").string("quant_method", "") == "mxfp4")) {
    reader.refuse("quantization_config",
                  "absent: quantised checkpoints are not read; use the original weights");
  }
  if (family != nullptr) {
    ModelConfig config{type, family->read(reader)};
    if (const auto* decoder = std::any_cast<DecoderConfig>(&config.values)) {
      check_size(*decoder, file);
    }
    return config;
  }
  const std::vector<std::string> known = families().names();
  reader.refuse("model_type", fmt::format("{}\"{}\"{}", known.size() == 1 ? "" : "one of ",
                                          fmt::join(known, "\", \""),
                                          known.size() == 1 ? ", the only family known" : ""));
}

}  // namespace strait::models
