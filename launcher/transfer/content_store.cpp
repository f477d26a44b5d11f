#include "launcher/transfer/content_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "launcher/transfer/table_text.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInUse = "in-use";
constexpr const char* kWriter = "writer";
constexpr const char* kTable = "table.json";
constexpr const char* kGoneSuffix = ".gone";

store::FileDescriptor open_lock(const fs::path& path) {
  store::FileDescriptor lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.open()) throw store::system_error("open", path, errno);
  return lock;
}

bool lock_now(const store::FileDescriptor& file, int kind, const fs::path& path) {
  if (::flock(file.number(), kind | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  throw store::system_error("lock", path, errno);
}

// The folder may have been pruned between the open and the lock; then this lock holds nothing.
bool still_there(const store::FileDescriptor& file, const fs::path& path) {
  struct stat held {};
  struct stat named {};
  return ::fstat(file.number(), &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
         held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

struct StoredContent {
  fs::path folder;
  std::int64_t used = 0;    // when, seconds
  std::uint64_t bytes = 0;  // on disk, without holes
};

std::vector<StoredContent> stored_contents(const fs::path& directory) {
  std::vector<StoredContent> contents;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    if (!is_content_id(entry.path().filename().string())) continue;
    StoredContent content{entry.path()};
    struct stat status {};
    if (::stat((entry.path() / kInUse).c_str(), &status) == 0) content.used = status.st_mtime;
    constexpr std::uint64_t kBlock = 512;
    if (::stat((entry.path() / "data").c_str(), &status) == 0) {
      content.bytes = static_cast<std::uint64_t>(status.st_blocks) * kBlock;
    }
    contents.push_back(std::move(content));
  }
  std::sort(contents.begin(), contents.end(),
            [](const auto& a, const auto& b) { return a.used < b.used; });
  return contents;
}

// False: somebody holds it.
bool remove_content(const fs::path& folder) {
  const store::FileDescriptor lock = open_lock(folder / kInUse);
  if (!lock_now(lock, LOCK_EX, folder)) return false;
  // Under another name first: who holds the same content again meanwhile starts a new folder.
  const fs::path gone = folder.string() + kGoneSuffix;
  std::error_code error;
  fs::remove_all(gone, error);
  if (!error) fs::rename(folder, gone, error);
  if (!error) fs::remove_all(gone, error);
  if (error) throw store::system_error("remove", folder, error.value());
  return true;
}

}  // namespace

PinnedContent::PinnedContent(fs::path folder, ChunkTable table, store::FileDescriptor in_use)
    : folder_(std::move(folder)), table_(std::move(table)), in_use_(std::move(in_use)) {}

bool PinnedContent::try_to_write() {
  if (writing_.open()) return true;
  store::FileDescriptor lock = open_lock(folder_ / kWriter);
  if (!lock_now(lock, LOCK_EX, folder_)) return false;
  writing_ = std::move(lock);
  return true;
}

ContentStore::ContentStore(fs::path directory, std::uint64_t limit)
    : directory_(std::move(directory)), limit_(limit) {
  store::make_directory(directory_);
}

PinnedContent ContentStore::hold(const ChunkTable& table) {
  const fs::path folder = directory_ / table.id();
  while (true) {
    store::make_directory(folder);
    store::FileDescriptor lock(
        ::open((folder / kInUse).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!lock.open() && errno == ENOENT) continue;  // pruned meanwhile
    if (!lock.open()) throw store::system_error("open", folder / kInUse, errno);
    // Whoever prunes has it for a moment only.
    if (::flock(lock.number(), LOCK_SH) != 0) throw store::system_error("lock", folder, errno);
    if (!still_there(lock, folder / kInUse)) continue;
    ::futimens(lock.number(), nullptr);
    std::error_code ignored;
    if (!fs::exists(folder / kTable, ignored)) {
      store::replace_file(folder / kTable, table_to_json(table).dump());
    }
    return {folder, table, std::move(lock)};
  }
}

std::optional<PinnedContent> ContentStore::find(const std::string& id) {
  std::error_code ignored;
  if (!is_content_id(id) || !fs::exists(directory_ / id / kTable, ignored)) return std::nullopt;
  try {
    const auto json =
        nlohmann::json::parse(store::read_text_file(directory_ / id / kTable, kMostTableText));
    const ChunkTable table = table_from_json(json);
    if (table.id() == id) return hold(table);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // torn: it will be written again by who fetches this content
  } catch (const store::StoreError&) {
    return std::nullopt;
  }
  return std::nullopt;
}

void ContentStore::prune(std::uint64_t coming) {
  const store::FileDescriptor one_at_a_time = open_lock(directory_ / "prune.lock");
  if (!lock_now(one_at_a_time, LOCK_EX, directory_)) return;
  const std::vector<StoredContent> contents = stored_contents(directory_);
  std::uint64_t kept = coming;
  for (const StoredContent& content : contents) kept += content.bytes;
  for (const StoredContent& content : contents) {
    const fs::space_info space = fs::space(directory_);
    if (kept <= limit_ && coming <= space.available) return;
    if (remove_content(content.folder)) kept -= content.bytes;
  }
}

}  // namespace strait::transfer
