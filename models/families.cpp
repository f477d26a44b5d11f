#include "models/families.h"

#include <algorithm>

namespace strait::models {

bool is_carried(const FileNames& names, const std::string& in_file) {
  return std::ranges::any_of(names.carried,
                             [&](const std::string& start) { return in_file.starts_with(start); });
}

std::optional<std::string> canonical_name(const FileNames& names, const std::string& in_file) {
  const bool ignored =
      std::any_of(names.ignored.begin(), names.ignored.end(),
                  [&](const std::string& ending) { return in_file.ends_with(ending); });
  if (ignored || is_carried(names, in_file)) return std::nullopt;
  for (const auto& [there, here] : names.inside) {
    if (in_file.starts_with(there)) return here + in_file.substr(there.size());
  }
  if (const auto alias = names.aliases.find(in_file); alias != names.aliases.end()) {
    return alias->second;
  }
  const std::string first = in_file.substr(0, in_file.find('.'));
  const bool bare = std::find(names.parts.begin(), names.parts.end(), first) != names.parts.end();
  return bare ? names.prefix + in_file : in_file;
}

Catalogue<Family>& families() {
  static Catalogue<Family> all("model family", {gpt2_family(),          llama_family(),
                                                mistral_family(),       qwen2_family(),
                                                qwen3_family(),         gpt_neox_family(),
                                                opt_family(),           gptj_family(),
                                                phi3_family(),          gemma2_family(),
                                                gemma3_family(),        qwen3_moe_family(),
                                                mixtral_family(),       olmoe_family(),
                                                ministral3_family(),    smollm3_family(),
                                                olmo3_family(),         granite_family(),
                                                qwen3_5_text_family(),  qwen3_5_moe_text_family(),
                                                qwen3_5_family(),       qwen3_5_moe_family(),
                                                gpt_oss_family(),       deepseek_v3_family(),
                                                glm4_moe_lite_family(), mistral4_family(),
                                                mistral3_family()});
  return all;
}

const Family& family_of(const ModelConfig& config) { return families().named(config.family); }

}  // namespace strait::models
