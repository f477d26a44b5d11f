#include "launcher/tokenizer/tokenizer_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "framework/store/file_hash.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"
#include "launcher/base/hub_name.h"
#include "launcher/base/text.h"

namespace strait::tokenizer {
namespace {

namespace fs = std::filesystem;

// Those that say how text becomes tokens, and messages text.
constexpr const char* kFiles[] = {"tokenizer.json",     "vocab.json",
                                  "merges.txt",         "tokenizer_config.json",
                                  "added_tokens.json",  "special_tokens_map.json",
                                  "chat_template.jinja"};
// Forms that this build does not read.
constexpr const char* kOtherForms[] = {"tokenizer.model", "spiece.model", "tiktoken.model",
                                       "vocab.txt",       "tekken.json",  "vocab.json"};

bool can_read(const fs::path& directory) {
  return fs::exists(directory / "tokenizer.json") ||
         (fs::exists(directory / "vocab.json") && fs::exists(directory / "merges.txt"));
}

const char* other_form(const fs::path& directory) {
  for (const char* name : kOtherForms) {
    if (fs::exists(directory / name)) return name;
  }
  return nullptr;
}

[[noreturn]] void refuse_tokenizer(const std::string& why) {
  throw store::StoreError(store::StoreError::Kind::bad_input, why);
}

// In the order of their names.
std::vector<fs::path> more_templates(const fs::path& folder) {
  std::vector<fs::path> found = store::entries_of(folder);
  std::erase_if(found, [](const fs::path& file) { return file.extension() != ".jinja"; });
  std::ranges::sort(found);
  return found;
}

}  // namespace

bool has_tokenizer(const fs::path& directory) {
  return can_read(directory) || other_form(directory) != nullptr;
}

TokenizerFolder open_tokenizer(const fs::path& directory) {
  if (!can_read(directory)) {
    if (const char* form = other_form(directory)) {
      refuse_tokenizer(fmt::format(
          "{} has {} and no tokenizer.json, which is what this build reads; write one with "
          "transformers, or name a directory that has one, or \"bytes\" (in a recipe: "
          "data.tokenizer): python3 -c 'import sys; from transformers import AutoTokenizer as T; "
          "T.from_pretrained(sys.argv[1]).save_pretrained(sys.argv[1])' {}",
          directory.string(), form, base::shell_word(directory.string())));
    }
    const bool there = fs::exists(directory);
    refuse_tokenizer(fmt::format(
        "{} is not a tokenizer's directory: there is no tokenizer.json, and no vocab.json with "
        "merges.txt; name a directory that has them, or \"bytes\" (in a recipe: "
        "data.tokenizer){}{}",
        directory.string(), there ? "" : "; ",
        there ? "" : base::download_advice(directory.string(), "--include '*.j*'")));
  }
  store::FileHash hash;
  const auto add = [&](const std::string& text) {
    hash.update(std::as_bytes(std::span(text)));
    hash.update(std::as_bytes(std::span("\0", 1)));
  };
  for (const char* name : kFiles) {
    const fs::path file = directory / name;
    if (fs::exists(file)) add(fmt::format("{} {}", name, store::hash_file(file).hash));
  }
  for (const fs::path& file : more_templates(directory / "additional_chat_templates")) {
    add(fmt::format("{} {}", file.filename().string(), store::hash_file(file).hash));
  }
  return {fs::absolute(directory).lexically_normal(), hash.hex()};
}

}  // namespace strait::tokenizer
