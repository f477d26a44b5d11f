#include "framework/data/token_cache.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "framework/store/atomic_file.h"
#include "framework/store/file_hash.h"
#include "framework/store/store_error.h"

namespace strait::data {
namespace {

namespace fs = std::filesystem;

// Incremented when the same input gives other rows.
constexpr int kFormat = 5;
constexpr const char* kContent = "content";
constexpr const char* kHasHeldOut = "held_out";
constexpr const char* kTokens = "tokens";
constexpr const char* kTraining = "";
constexpr const char* kHeldOut = ".held-out";
constexpr std::chrono::hours kUnused{24 * 60};
// A temporary file of this age was left by a process that was killed.
constexpr std::chrono::hours kAbandoned{24};
constexpr double kMostGigabytes = 20;
constexpr double kLargestLimit = 1e6;  // gigabytes; bytes of it fit into an integer

double most_bytes() {
  double gigabytes = kMostGigabytes;
  if (const char* set = std::getenv("STRAIT_CACHE_GB"); set != nullptr) {
    const char* const end = set + std::strlen(set);
    double value = 0;
    const auto [rest, error] = std::from_chars(set, end, value);
    if (error != std::errc() || rest != end || !(value >= 0 && value <= kLargestLimit)) {
      throw store::StoreError(
          store::StoreError::Kind::bad_input,
          "STRAIT_CACHE_GB is \"{}\", but must be a number of gigabytes from 0 to {:.0e}", set,
          kLargestLimit);
    }
    gigabytes = value;
  }
  return gigabytes * 1e9;
}

// Reads one part. Null: it is missing or incomplete.
std::shared_ptr<const TokenFile> read_part(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return nullptr;
  try {
    auto tokens = std::make_shared<const TokenFile>(file);
    const auto content = tokens->metadata().find(kContent);
    if (content == tokens->metadata().end() || content->second != tokens->hash()) return nullptr;
    // Records the last use; see prune_cache().
    fs::last_write_time(file, fs::file_time_type::clock::now(), ignored);
    return tokens;
  } catch (const store::StoreError&) {
    return nullptr;  // damaged, so it is made again
  }
}

}  // namespace

fs::path cache_folder(const std::string& name) {
  const auto named = [](const char* variable) -> fs::path {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  if (const fs::path own = named("STRAIT_CACHE"); !own.empty()) return own / name;
  if (const fs::path all = named("XDG_CACHE_HOME"); !all.empty()) return all / "strait" / name;
  const fs::path home = named("HOME");
  return home.empty() ? home : home / ".cache" / "strait" / name;
}

TokenCache::TokenCache(const fs::path& source, const DataOptions& options,
                       const std::string& tokenizer_hash, const TokenizerOpener& tokenizers)
    : source_(source.string()), tokenizer_hash_(tokenizer_hash) {
  if (options.tokenizer == kByteTokenizer) return;
  folder_ = cache_folder(kTokens);
  if (folder_.empty()) return;
  const PackOptions& rows = options.rows;
  std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", kFormat, store::hash_file(source).hash,
                  source.extension().string(), tokenizer_hash, tokenizers.program_hash(), rows.row,
                  static_cast<int>(options.targets), static_cast<int>(rows.too_long),
                  static_cast<int>(rows.packing), rows.overlap);
  if (options.hold_out > 0) key += fmt::format(" {} {}", options.hold_out, options.seed);
  if (options.preferences) key += options.rated ? " rated" : " preferences";
  key_ = store::hash_text(key);
}

fs::path TokenCache::file(const char* part) const {
  return folder_ / (key_ + part + ".safetensors");
}

std::optional<PackedFile> TokenCache::read() const {
  if (folder_.empty()) return std::nullopt;
  PackedFile packed{read_part(file(kTraining)), nullptr, {}};
  if (packed.tokens == nullptr) return std::nullopt;
  const auto& metadata = packed.tokens->metadata();
  const auto note = metadata.find("note");
  if (note != metadata.end()) packed.note = note->second;
  if (!metadata.contains(kHasHeldOut)) return packed;
  packed.held_out = read_part(file(kHeldOut));
  return packed.held_out == nullptr ? std::nullopt : std::optional(std::move(packed));
}

std::string TokenCache::write(const PackedFile& packed) const {
  if (folder_.empty()) return "";
  std::map<std::string, std::string> metadata{
      {"source", source_}, {"tokenizer_hash", tokenizer_hash_}, {"note", packed.note}};
  const auto write_part = [&](const char* part, const TokenFile& rows) {
    metadata[kContent] = rows.hash();
    write_token_file(file(part), rows, metadata);
  };
  try {
    store::make_directory(folder_);
    // Written first, because the presence of the training part says that this one is complete.
    if (packed.held_out != nullptr) {
      write_part(kHeldOut, *packed.held_out);
      metadata[kHasHeldOut] = "yes";
    }
    write_part(kTraining, *packed.tokens);
  } catch (const store::StoreError&) {
    return "";  // the rows are in memory; only the next preparation takes longer
  }
  return prune_cache(folder_, key_);
}

std::string prune_cache(const fs::path& folder, const std::string& kept) {
  struct Entry {
    fs::path path;
    fs::file_time_type used;
    double bytes;
  };
  std::vector<Entry> entries;
  const auto now = fs::file_time_type::clock::now();
  double all = 0;
  double removed = 0;
  int files = 0;
  // Other processes remove files, too. Files that cannot be examined or removed are not counted.
  const auto remove = [&](const fs::path& path, double bytes) {
    std::error_code failed;
    if (!fs::remove(path, failed)) return;
    removed += bytes;
    ++files;
  };
  std::error_code unreadable;
  for (fs::directory_iterator found(folder, unreadable), end; !unreadable && found != end;
       found.increment(unreadable)) {
    const fs::path path = found->path();
    std::error_code failed;
    const auto used = fs::last_write_time(path, failed);
    const auto bytes = static_cast<double>(failed ? 0 : fs::file_size(path, failed));
    if (failed) continue;
    const std::string name = path.filename().string();
    if (name.starts_with(kept) && !kept.empty() && path.extension() == ".safetensors") {
      all += bytes;
      continue;
    }
    const bool whole = path.extension() == ".safetensors";
    if (now - used > (whole ? kUnused : kAbandoned)) {
      remove(path, bytes);
    } else if (whole) {
      entries.push_back({path, used, bytes});
      all += bytes;
    }
  }
  std::ranges::sort(entries, {}, &Entry::used);
  const double most = most_bytes();
  for (const Entry& entry : entries) {
    if (all <= most) break;
    remove(entry.path, entry.bytes);
    all -= entry.bytes;
  }
  if (files == 0) return "";
  return fmt::format("removed {} old file{} ({:.1f} MB) from the cache {}", files,
                     files == 1 ? "" : "s", removed / 1e6, folder.string());
}

fs::path spool_folder() {
  fs::path folder = cache_folder(kTokens);
  if (!folder.empty()) {
    try {
      store::make_directory(folder);
      return folder;
    } catch (const store::StoreError&) {
      return fs::temp_directory_path();  // the user's home cannot be written to
    }
  }
  return fs::temp_directory_path();
}

}  // namespace strait::data
