#include "launcher/transfer/table_cache.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "framework/store/atomic_file.h"
#include "framework/store/file_hash.h"
#include "framework/store/file_lock.h"
#include "framework/store/input_file.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;

struct CachedTable {
  std::string path;
  FileStamp stamp;
  ChunkTable table;
};

std::optional<CachedTable> read_cached_table(const fs::path& entry) {
  std::error_code error;
  if (!fs::exists(entry, error)) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(store::read_text_file(entry, kMostTableText));
    return CachedTable{json.at("path"), stamp_from_json(json), table_from_json(json.at("table"))};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // incomplete, or written by another build: a cache miss
  } catch (const store::StoreError&) {
    return std::nullopt;
  }
}

}  // namespace

ChunkTable TableCache::table(const fs::path& path) const {
  std::error_code error;
  const std::string name = fs::weakly_canonical(path, error).string();
  if (error) throw store::system_error("read", path, error.value());
  const fs::path entry = directory_ / (store::hash_text(name) + ".json");
  const FileStamp before = FileStamp::of(path);
  if (const auto cached = read_cached_table(entry);
      cached && cached->path == name && cached->stamp == before) {
    return cached->table;
  }
  ChunkTable table = read_chunk_table(path);
  if (FileStamp::of(path) != before) {
    throw store::StoreError(store::StoreError::Kind::busy,
                            fmt::format("{} was modified while it was read", path.string()));
  }
  nlohmann::json json = stamp_to_json(before);
  json["path"] = name;
  json["table"] = table_to_json(table);
  try {
    write(entry, json.dump());
  } catch (const store::StoreError&) {
    // Without an entry the table is computed again next time.
  }
  return table;
}

void TableCache::write(const fs::path& entry, const std::string& text) const {
  store::make_directory(directory_);
  const FileDescriptor lock = store::try_lock(directory_.string() + ".lock");
  // Does not wait: the other process may be stopped, and a lost entry is only computed again.
  if (!lock.open()) return;
  // With the lock held, every incomplete file here is from a process that was killed. Old entries
  // go, too: each checkpoint adds some, and most of its files are removed soon.
  const auto oldest = fs::file_time_type::clock::now() - kMaxAge;
  std::error_code ignored;
  for (const fs::path& found : store::entries_of(directory_)) {
    const bool incomplete = found.extension() != entry.extension();
    if (incomplete || fs::last_write_time(found, ignored) < oldest) fs::remove(found, ignored);
  }
  store::replace_file(entry, text);
}

}  // namespace strait::transfer
