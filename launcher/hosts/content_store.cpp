#include "launcher/hosts/content_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "framework/fields/json_fields.h"
#include "framework/store/atomic_file.h"
#include "framework/store/file_hash.h"
#include "framework/store/file_lock.h"
#include "framework/store/input_file.h"
#include "framework/store/memory_directory.h"
#include "framework/store/step_folders.h"
#include "framework/store/store_error.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInUse = "in-use";
constexpr const char* kWriter = "writer";
constexpr const char* kTables = "tables";
constexpr const char* kRemovedSuffix = ".gone";

// `strait install` stores the files of builds under their SHA-256, which a host's shell can check.
bool is_installed_file(const std::string& name) {
  constexpr std::size_t kSha256Digits = 64;
  return name.size() == kSha256Digits &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

struct StoredContent {
  fs::path folder;
  std::int64_t used = 0;    // time of the last use, seconds
  std::uint64_t bytes = 0;  // on disk, without holes
  bool linked = false;      // a build has a hard link to it
};

// Least recently used first. Call it with the lock of evict(): it removes the rest of an eviction
// that was killed.
std::vector<StoredContent> stored_contents(const fs::path& directory) {
  std::vector<StoredContent> contents;
  for (const fs::path& entry : store::entries_of(directory)) {
    if (entry.extension() == kRemovedSuffix) {
      std::error_code ignored;
      fs::remove_all(entry, ignored);
      continue;
    }
    const std::string name = entry.filename().string();
    if (!is_content_id(name) && !is_installed_file(name)) continue;
    StoredContent content{entry};
    struct stat status {};
    if (::stat((entry / kInUse).c_str(), &status) == 0) content.used = status.st_mtime;
    constexpr std::uint64_t kBlock = 512;
    if (::stat((entry / "data").c_str(), &status) == 0) {
      content.bytes = static_cast<std::uint64_t>(status.st_blocks) * kBlock;
      content.linked = status.st_nlink > 1;
    }
    contents.push_back(std::move(content));
  }
  std::sort(contents.begin(), contents.end(),
            [](const auto& a, const auto& b) { return a.used < b.used; });
  return contents;
}

// False: it is pinned.
bool remove_content(const fs::path& folder) {
  const FileDescriptor lock = store::try_lock(folder / kInUse);
  if (!lock.open()) return false;
  // Renamed first: a process that pins the same content meanwhile starts a new folder.
  const fs::path removed = folder.string() + kRemovedSuffix;
  std::error_code error;
  fs::remove_all(removed, error);
  if (!error) fs::rename(folder, removed, error);
  if (!error) fs::remove_all(removed, error);
  if (error) throw store::system_error("remove", folder, error.value());
  return true;
}

struct CachedTable {
  std::string path;
  FileStamp stamp;
  ChunkTable table;
};

void describe(auto& f, fields::Is<CachedTable> auto& m) {
  f("path", m.path), f("stamp", m.stamp), f("table", m.table);
}

std::optional<CachedTable> read_cached_table(const fs::path& entry) {
  std::error_code error;
  if (!fs::exists(entry, error)) return std::nullopt;
  try {
    auto cached = fields::from_text<CachedTable>(store::read_text_file(entry, kMostNoteText),
                                                 "chunk table", kNoteLimits);
    if (cached.table.well_formed()) return cached;
  } catch (const fields::MessageError&) {
    // Incomplete, or written by another build: the file is read again.
  } catch (const store::StoreError&) {
    // The same: what cannot be read is not worth an error, because the file itself may be readable.
  }
  return std::nullopt;
}

}  // namespace

bool PinnedContent::try_lock_for_writing() {
  if (!write_lock_.open()) write_lock_ = store::try_lock(folder_ / kWriter);
  return write_lock_.open();
}

ContentStore::ContentStore(fs::path directory, std::uint64_t limit)
    : directory_(std::move(directory)), limit_(limit) {
  store::make_directory(directory_);
}

PinnedContent ContentStore::pin(const std::string& id) {
  const fs::path folder = directory_ / id;
  while (true) {
    store::make_directory(folder);
    FileDescriptor lock(::open((folder / kInUse).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!lock.open() && errno == ENOENT) continue;  // evicted meanwhile
    if (!lock.open()) throw store::system_error("open", folder / kInUse, errno);
    // Blocks only while another process evicts this content, which is short.
    if (::flock(lock.number(), LOCK_SH) != 0) throw store::system_error("lock", folder, errno);
    if (!store::is_same_file(lock, folder / kInUse)) continue;
    ::futimens(lock.number(), nullptr);
    return {folder, std::move(lock)};
  }
}

void ContentStore::evict(std::uint64_t needed_bytes) {
  const FileDescriptor one_at_a_time = store::try_lock(directory_ / "prune.lock");
  if (!one_at_a_time.open()) return;
  const std::vector<StoredContent> contents = stored_contents(directory_);
  std::uint64_t total = needed_bytes;
  for (const StoredContent& content : contents) total += content.bytes;
  for (const StoredContent& content : contents) {
    std::error_code error;
    const fs::space_info space = fs::space(directory_, error);
    if (error) throw store::system_error("find the free space of", directory_, error.value());
    if (total <= limit_ && needed_bytes <= space.available) return;
    if (!content.linked && remove_content(content.folder)) total -= content.bytes;
  }
}

ChunkTable ContentStore::table_of(const fs::path& path) const {
  std::error_code error;
  const std::string name = fs::weakly_canonical(path, error).string();
  if (error) throw store::system_error("read", path, error.value());
  // To read it again takes no longer than to read an entry.
  if (store::MemoryDirectory::contains(name)) return read_chunk_table(path);
  const fs::path entry = directory_ / kTables / (store::hash_text(name) + ".json");
  const FileStamp before = FileStamp::of(path);
  if (const auto cached = read_cached_table(entry);
      cached && cached->path == name && cached->stamp == before) {
    return cached->table;
  }
  ChunkTable table = read_chunk_table(path);
  if (FileStamp::of(path) != before) {
    throw store::StoreError(store::StoreError::Kind::busy, "{} was modified while it was read",
                            path.string());
  }
  try {
    write_table(entry, fields::to_object(CachedTable{name, before, table}).dump());
  } catch (const store::StoreError&) {
    // Without an entry the table is computed again next time.
  }
  return table;
}

void ContentStore::write_table(const fs::path& entry, const std::string& text) const {
  const fs::path tables = directory_ / kTables;
  store::make_directory(tables);
  const FileDescriptor lock = store::try_lock(tables.string() + ".lock");
  // Does not wait: the other process may be stopped, and a lost entry costs only another reading.
  if (!lock.open()) return;
  // While this process has the lock, every incomplete file here is from a process that was killed.
  // Old entries are removed, too: each checkpoint adds some, and most of its files are removed
  // soon.
  const auto oldest = fs::file_time_type::clock::now() - kMaxTableAge;
  std::error_code ignored;
  for (const fs::path& found : store::entries_of(tables)) {
    const bool incomplete = found.extension() != entry.extension();
    if (incomplete || fs::last_write_time(found, ignored) < oldest) fs::remove(found, ignored);
  }
  store::replace_file(entry, text);
}

}  // namespace strait::transfer
