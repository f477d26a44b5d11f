#include "launcher/transfer/table_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>

#include "framework/store/atomic_file.h"
#include "framework/store/file_descriptor.h"
#include "framework/store/file_hash.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "launcher/transfer/file_stamp.h"
#include "launcher/transfer/table_text.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;

struct KnownFile {
  std::string path;
  FileStamp stamp;
  ChunkTable table;
};

std::optional<KnownFile> read_known_file(const fs::path& entry) {
  std::error_code error;
  if (!fs::exists(entry, error)) return std::nullopt;
  try {
    const auto json = nlohmann::json::parse(store::read_text_file(entry, kMostTableText));
    KnownFile known{json.at("path"),
                    {json.at("size"), json.at("inode"), json.at("changed")},
                    table_from_json(json.at("table"))};
    return known;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // torn or of another build: as if there were none
  } catch (const store::StoreError&) {
    return std::nullopt;
  }
}

}  // namespace

ChunkTable TableCache::table(const fs::path& path) const {
  const std::string name = fs::weakly_canonical(path).string();
  const fs::path entry = directory_ / (store::hash_text(name) + ".json");
  const FileStamp before = FileStamp::of(path);
  if (const auto known = read_known_file(entry);
      known && known->path == name && known->stamp == before) {
    return known->table;
  }
  ChunkTable table = read_chunk_table(path);
  if (FileStamp::of(path) != before) {
    throw store::StoreError(store::StoreError::Kind::busy,
                            fmt::format("{} was changed while it was read", path.string()));
  }
  write(entry, nlohmann::json{{"path", name},
                              {"size", before.size},
                              {"inode", before.inode},
                              {"changed", before.changed},
                              {"table", table_to_json(table)}}
                   .dump());
  return table;
}

void TableCache::write(const fs::path& entry, const std::string& text) const {
  store::make_directory(directory_);
  const fs::path lock = directory_.string() + ".lock";
  const store::FileDescriptor turn(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!turn.open()) throw store::system_error("open", lock, errno);
  // Nobody waits for another, which may be stopped: an entry that is not written is made again.
  if (::flock(turn.number(), LOCK_EX | LOCK_NB) != 0) return;
  // Whose turn it is knows that what is half-written here is of somebody who was killed. Every
  // checkpoint leaves an entry, and most of their files are gone soon.
  const auto oldest = fs::file_time_type::clock::now() - kKept;
  std::error_code ignored;
  for (const fs::directory_entry& found : fs::directory_iterator(directory_, ignored)) {
    const bool torn = found.path().extension() != entry.extension();
    if (torn || found.last_write_time(ignored) < oldest) fs::remove(found.path(), ignored);
  }
  store::replace_file(entry, text);
}

}  // namespace strait::transfer
