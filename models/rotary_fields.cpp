// How config.json files describe rotary position embeddings.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/config_fields.h"

namespace strait::models {
namespace {

// One pair's frequency, 1 / theta^(2i/d), rounded where the library rounds.
std::vector<float> plain_frequencies(double theta, std::int64_t width) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < width; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(width);
    frequencies.push_back(1.0F / std::pow(static_cast<float>(theta), exponent));
  }
  return frequencies;
}

double positive(const ConfigReader& settings, const std::string& field, double absent) {
  return settings.number(field, absent, 1e-9, 1e12);
}

double required(const ConfigReader& settings, const std::string& field) {
  if (!settings.has(field)) settings.refuse(field, "a number, which this rope_type needs");
  return positive(settings, field, 1);
}

void scale_llama3(const ConfigReader& settings, double original, std::vector<float>& frequencies) {
  const double factor = required(settings, "factor");
  const double low = required(settings, "low_freq_factor");
  const double high = required(settings, "high_freq_factor");
  for (float& frequency : frequencies) {
    const double turns = original * frequency / (2 * M_PI);  // over the original context
    // Fast angles stay, slow ones are divided, and those between are blended.
    if (turns < low) {
      frequency = static_cast<float>(frequency / factor);
    } else if (turns <= high) {
      const double smooth = (turns - low) / (high - low);
      frequency = static_cast<float>((1 - smooth) * frequency / factor + smooth * frequency);
    }
  }
}

double yarn_magnitude(double scale, double factor) {
  return scale <= 1 ? 1 : 0.1 * factor * std::log(scale) + 1;
}

// Returns the factor of cosine and sine. `truncate`: the ends of the ramp are whole numbers.
double scale_yarn(const ConfigReader& settings, double theta, double original, double longest,
                  bool truncate, std::vector<float>& frequencies) {
  const double factor = positive(settings, "factor", longest / original);
  const auto width = static_cast<double>(2 * frequencies.size());
  const auto dimension = [&](double rotations) {
    return width * std::log(original / (rotations * 2 * M_PI)) / (2 * std::log(theta));
  };
  double first = dimension(positive(settings, "beta_fast", 32));
  double last = dimension(positive(settings, "beta_slow", 1));
  if (truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, width - 1);
  if (first == last) last += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    frequencies[i] =
        static_cast<float>(frequencies[i] / factor * ramp + frequencies[i] * (1 - ramp));
  }
  if (settings.has("attention_factor")) return positive(settings, "attention_factor", 1);
  const double own = settings.number("mscale", 0, 0, 100);
  const double all = settings.number("mscale_all_dim", 0, 0, 100);
  if (own > 0 && all > 0) return yarn_magnitude(factor, own) / yarn_magnitude(factor, all);
  return yarn_magnitude(factor, 1);
}

// Rows up to the original context use the short factors; the caller limits rows to that.
double scale_longrope(const ConfigReader& settings, double original, double longest,
                      std::vector<float>& frequencies) {
  const auto factors = settings.numbers("short_factor");
  if (!factors || factors->size() != frequencies.size()) {
    settings.refuse("short_factor", fmt::format("a list of {} numbers", frequencies.size()));
  }
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = static_cast<float>(frequencies[i] / (*factors)[i]);
  }
  if (settings.has("attention_factor")) return positive(settings, "attention_factor", 1);
  const double factor = positive(settings, "factor", longest / original);
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
}

// Of layers of several types the library adds the old spelling to rope_parameters, and takes the
// type from its new key alone.
void check_old_spelling(const ConfigReader& reader) {
  if (!reader.has("rope_scaling")) return;
  if (reader.has("rope_parameters")) {
    reader.refuse("rope_scaling", "absent, as rope_parameters is there");
  }
  const ConfigReader settings = reader.object("rope_scaling");
  if (!settings.has("rope_type") && settings.string("type", "default") != "default") {
    settings.refuse("type",
                    "absent: the library reads rope_type in this family, and would not "
                    "scale the angles");
  }
}

ConfigReader rotary_settings(const ConfigReader& reader, const std::string& group) {
  if (!group.empty()) check_old_spelling(reader);
  if (!group.empty() && !reader.has("rope_scaling") && reader.has("rope_parameters")) {
    return reader.object("rope_parameters").object(group);
  }
  // If layers have several types, the old spelling scales only those with full attention.
  if (group == "sliding_attention") return reader.object("rope_parameters").object(group);
  return reader.object(reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
}

}  // namespace

double yarn_score_factor(const ConfigReader& reader) {
  const ConfigReader settings = rotary_settings(reader, "");
  const std::string type = settings.string("rope_type", settings.string("type", "default"));
  const double all = settings.number("mscale_all_dim", 0, 0, 100);
  if (type == "default" || all == 0) return 1;
  return std::pow(yarn_magnitude(required(settings, "factor"), all), 2);
}

void read_query_growth(const ConfigReader& reader, DecoderConfig& config) {
  if (!reader.has("rope_parameters")) {
    reader.refuse("rope_parameters", "an object: the files of this family have it");
  }
  const ConfigReader settings = reader.object("rope_parameters");
  config.query_growth = {settings.number("llama_4_scaling_beta", 0, 0, 1e3),
                         settings.number("original_max_position_embeddings",
                                         static_cast<double>(config.positions), 1, 1e9)};
}

Rotary plain_rotary(double theta, std::int64_t width) {
  Rotary rotary;
  rotary.frequencies = plain_frequencies(theta, width);
  return rotary;
}

std::shared_ptr<const Rotary> read_rotary(const ConfigReader& reader, DecoderConfig& config,
                                          const RotaryDefaults& defaults,
                                          const std::string& group) {
  const ConfigReader settings = rotary_settings(reader, group);
  const double absent_theta = defaults.theta_field.empty()
                                  ? defaults.theta
                                  : positive(reader, defaults.theta_field, defaults.theta);
  const double theta = positive(settings, "rope_theta", absent_theta);
  double share = 1;
  if (!defaults.share_field.empty()) {
    share = reader.number(defaults.share_field, defaults.share, 0, 1);
  }
  share = settings.number("partial_rotary_factor", share, 0, 1);
  if (defaults.share_field.empty() && share != 1) {
    settings.refuse("partial_rotary_factor", "1: this family rotates whole heads");
  }
  const auto width = static_cast<std::int64_t>(static_cast<double>(config.head_width) * share);
  if (width == 0) return nullptr;
  if (width % 2 != 0) {
    reader.refuse(defaults.share_field.empty() ? "head_dim" : defaults.share_field,
                  fmt::format("an even number of rotated values in a head, not {}", width));
  }

  auto rotary = std::make_shared<Rotary>();
  rotary->frequencies = plain_frequencies(theta, width);
  std::string type = settings.string("rope_type", settings.string("type", "default"));
  const auto longest = static_cast<double>(config.positions);
  const double fallback = defaults.longrope_original.value_or(
      positive(settings, "original_max_position_embeddings", longest));
  const double original =
      group.empty() ? positive(reader, "original_max_position_embeddings", fallback) : fallback;
  if (defaults.longrope_original && type == "yarn") type = "longrope";
  if (defaults.longrope_original && type != "default" && type != "longrope" && type != "su") {
    settings.refuse(settings.has("rope_type") ? "rope_type" : "type", "default or longrope");
  }
  if (type == "linear") {
    const double factor = required(settings, "factor");
    for (float& frequency : rotary->frequencies) frequency /= static_cast<float>(factor);
  } else if (type == "llama3") {
    scale_llama3(settings, original, rotary->frequencies);
  } else if (type == "yarn") {
    // Of layers of several types the library reads it next to the types, not inside of them.
    const bool truncate = group.empty()
                              ? settings.boolean("truncate", true)
                              : reader.object("rope_parameters").boolean("truncate", true);
    rotary->scale = scale_yarn(settings, theta, original, longest, truncate, rotary->frequencies);
  } else if (type == "longrope" || type == "su") {
    rotary->scale = scale_longrope(settings, original, longest, rotary->frequencies);
    config.positions = std::min(config.positions, static_cast<std::int64_t>(original));
  } else if (type != "default" && type != "dynamic") {
    // "dynamic" scales only rows longer than max_position_embeddings, which are refused elsewhere.
    settings.refuse(settings.has("rope_type") ? "rope_type" : "type",
                    "one of default, linear, dynamic, llama3, yarn, longrope");
  }
  return rotary;
}

}  // namespace strait::models
