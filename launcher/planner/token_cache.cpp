#include "launcher/planner/token_cache.h"

#include <fmt/format.h>

#include <cstdlib>

#include "framework/store/atomic_file.h"
#include "framework/store/file_hash.h"
#include "framework/store/store_error.h"
#include "launcher/tokenizer/tokenizer_worker.h"

namespace strait::planner {
namespace {

namespace fs = std::filesystem;

// Counts up when the same input becomes other rows.
constexpr int kFormat = 1;
constexpr const char* kContent = "content";

fs::path cache_folder() {
  const auto named = [](const char* variable) -> fs::path {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  if (const fs::path own = named("STRAIT_CACHE"); !own.empty()) return own / "tokens";
  if (const fs::path all = named("XDG_CACHE_HOME"); !all.empty()) return all / "strait" / "tokens";
  const fs::path home = named("HOME");
  return home.empty() ? home : home / ".cache" / "strait" / "tokens";
}

}  // namespace

fs::path cache_file(const fs::path& source, const DataOptions& options,
                    const std::string& tokenizer_hash) {
  const fs::path folder = cache_folder();
  if (folder.empty()) return {};
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {}", kFormat, store::hash_file(source).hash,
                  source.extension().string(), tokenizer_hash,
                  store::hash_file(tokenizer::worker_script()).hash, options.row,
                  static_cast<int>(options.targets), static_cast<int>(options.too_long));
  return folder / (store::hash_text(key) + ".safetensors");
}

std::shared_ptr<const tensors::TokenFile> read_cache(const fs::path& file) {
  if (file.empty() || !fs::exists(file)) return nullptr;
  try {
    auto tokens = std::make_shared<const tensors::TokenFile>(file);
    const auto content = tokens->metadata().find(kContent);
    if (content != tokens->metadata().end() && content->second == tokens->hash()) return tokens;
  } catch (const store::StoreError&) {
    return nullptr;  // it is damaged, and is made anew
  }
  return nullptr;
}

void write_cache(const fs::path& file, const PreparedData& data) {
  if (file.empty()) return;
  try {
    store::make_directory(file.parent_path());
    tensors::write_token_file(file, data.tokens->table(),
                              {{"source", data.source.string()},
                               {"tokenizer", data.tokenizer_name},
                               {"tokenizer_hash", data.tokenizer},
                               {"note", data.note},
                               {kContent, data.tokens->hash()}});
  } catch (const store::StoreError&) {
    return;  // the tokens are in memory: only the next preparation takes longer
  }
}

}  // namespace strait::planner
