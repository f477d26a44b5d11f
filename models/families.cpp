#include "models/families.h"

#include <algorithm>

namespace strait::models {
namespace {

// With `to` in place of the parts `from`, which may be several.
std::string with_part(const std::string& name, const std::string& from, const std::string& to) {
  const std::size_t begin = from.empty() ? name.npos : name.find(from);
  if (begin == name.npos) return name;
  const std::size_t end = begin + from.size();
  const bool is_part =
      (begin == 0 || name[begin - 1] == '.') && (end == name.size() || name[end] == '.');
  return is_part ? name.substr(0, begin) + to + name.substr(end) : name;
}

}  // namespace

std::string own_name(const FileNames& names, const std::string& in_library) {
  const auto alias = names.aliases.find(in_library);
  if (alias != names.aliases.end()) return alias->second;
  const bool inside = !names.module.empty() && in_library.starts_with(names.module);
  return with_part(inside ? names.prefix + in_library.substr(names.module.size()) : in_library,
                   names.renamed.second, names.renamed.first);
}

// Names that transformers uses today.
std::string name_in_library(const FileNames& names, const std::string& own) {
  const auto alias = std::ranges::find_if(
      names.aliases, [&](const auto& other_and_own) { return other_and_own.second == own; });
  if (alias != names.aliases.end()) return alias->first;
  const bool moved = !names.module.empty() && own.starts_with(names.prefix);
  return with_part(moved ? names.module + own.substr(names.prefix.size()) : own,
                   names.renamed.first, names.renamed.second);
}

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
