#include "launcher/hosts/destination_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <system_error>

#include "framework/fields/json_fields.h"
#include "framework/store/atomic_file.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPart = ".part";

// A content stays pinned until its process ends. A write lock that stayed on it would block every
// later fetch of it.
struct UnlockOnExit {
  std::shared_ptr<PinnedContent> content;
  ~UnlockOnExit() {
    if (content) content->unlock_writing();
  }
};

struct PresentChunks {
  std::string table;  // its id
  FileStamp stamp;
  std::vector<ChunkRun> runs;
};

void describe(auto& f, fields::Is<PresentChunks> auto& m) {
  f("table", m.table), f("stamp", m.stamp), f("runs", m.runs);
}

[[noreturn]] void chunk_file_failed(const char* action, const fs::path& path, int error,
                                    std::uint64_t bytes) {
  if (error == ENOSPC || error == EDQUOT) require_room(path.parent_path(), bytes, path.string());
  throw store::system_error(action, path, error);
}

std::uint64_t free_bytes(const fs::path& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0) {
    throw store::system_error("get the free space of", directory, errno);
  }
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

}  // namespace

DestinationFile::DestinationFile(const FetchRequest& request,
                                 std::shared_ptr<PinnedContent> content)
    : path_(request.path), content_(std::move(content)) {}

std::unique_ptr<DestinationFile> DestinationFile::open(ContentStore& store,
                                                       const FetchRequest& request,
                                                       const fs::path& local) {
  std::shared_ptr<PinnedContent> content;
  store::make_directory(request.path.parent_path());
  if (request.as == FetchRequest::As::content) {
    content = std::make_shared<PinnedContent>(store.pin(request.table.id()));
    if (!content->try_lock_for_writing()) return nullptr;
  }
  std::unique_ptr<DestinationFile> destination(new DestinationFile(request, content));
  const fs::path data = content ? content->data() : fs::path(request.path.string() + kPart);
  destination->file_.emplace(data, request.table);
  ChunkSet lacking = request.chunks;
  lacking.erase(destination->file_->chunks());
  const std::uint64_t bytes = lacking.bytes(request.table);
  if (content && bytes > 0) store.evict(bytes);
  require_room(data.parent_path(), bytes, request.path.string());
  if (!local.empty() && local != data) destination->copy_from(local, lacking);
  return destination;
}

void DestinationFile::copy_from(const fs::path& local, const ChunkSet& lacking) {
  try {
    const store::InputFile source(local);
    std::vector<std::byte> buffer(ChunkTable::kChunkBytes);
    for (std::uint32_t chunk = 0; chunk < lacking.size(); ++chunk) {
      const ChunkTable& table = file_->table();
      if (!lacking.contains(chunk) || source.size() != table.size) continue;
      const std::span<std::byte> content = std::span(buffer).first(table.bytes(chunk));
      source.read(table.begin(chunk), content);
      file_->write(chunk, content);  // a chunk that does not match is fetched
    }
  } catch (const store::StoreError& error) {
    // A chunk that cannot be read here is fetched instead. A full disk ends the fetch.
    if (error.kind() == store::StoreError::Kind::storage_full) throw;
  }
}

void DestinationFile::finish() {
  if (!content_) {
    file_->finish(path_);
    return;
  }
  {
    const UnlockOnExit unlock{content_};
    file_->save();
  }
  place_link(path_, content_->data());
}

void DestinationFile::abandon() {
  const UnlockOnExit unlock{content_};
  try {
    file_->save();
  } catch (const store::StoreError&) {
    // Without the note the next fetch verifies the chunks.
  }
}

void place_link(const fs::path& link, const fs::path& target) {
  const fs::path temporary = fmt::format("{}.tmp-{}", link.string(), ::getpid());
  std::error_code error;
  fs::remove(temporary, error);
  if (!error) fs::create_symlink(fs::absolute(target), temporary, error);
  if (!error) fs::rename(temporary, link, error);
  if (error) throw store::system_error("link", link, error.value());
}

void require_room(const fs::path& directory, std::uint64_t bytes, const std::string& what) {
  const std::uint64_t available = free_bytes(directory);
  if (bytes <= available) return;
  throw store::StoreError(store::StoreError::Kind::storage_full,
                          "no room for {}: {} bytes are needed, {} are free in {}; make room there",
                          what, bytes, available, directory.string());
}

PartialFile::PartialFile(fs::path path, ChunkTable table)
    : path_(std::move(path)), table_(std::move(table)), present_(table_.count()) {
  std::error_code ignored;
  const bool existed = fs::exists(path_, ignored);
  descriptor_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!descriptor_.open()) chunk_file_failed("create", path_, errno, table_.size);
  if (existed && read_note()) return;
  if (::ftruncate(descriptor_.number(), static_cast<off_t>(table_.size)) != 0) {
    chunk_file_failed("resize", path_, errno, table_.size);
  }
  if (existed) verify_all();
}

bool PartialFile::read_note() {
  std::error_code ignored;
  if (!fs::exists(note(), ignored)) return false;
  try {
    const auto noted = fields::from_text<PresentChunks>(
        store::read_text_file(note(), kMostNoteText), "note of chunks", kNoteLimits);
    return noted.table == table_.id() && noted.stamp == FileStamp::of(path_) &&
           present_.insert(noted.runs);
  } catch (const fields::MessageError&) {
    return false;  // damaged or written by another program: verify the chunks
  }
}

void PartialFile::verify_all() {
  std::vector<std::byte> buffer(ChunkTable::kChunkBytes);
  for (std::uint32_t chunk = 0; chunk < table_.count(); ++chunk) {
    const std::span<std::byte> content = std::span(buffer).first(table_.bytes(chunk));
    read(chunk, content);
    if (table_.matches(chunk, content)) present_.insert(chunk);
  }
}

bool PartialFile::write(std::uint32_t chunk, std::span<const std::byte> content) {
  if (!table_.matches(chunk, content)) return false;
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t count =
        ::pwrite(descriptor_.number(), content.data() + done, content.size() - done,
                 static_cast<off_t>(table_.begin(chunk) + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) chunk_file_failed("write", path_, errno, content.size() - done);
    done += static_cast<std::size_t>(count);
  }
  present_.insert(chunk);
  return true;
}

void PartialFile::read(std::uint32_t chunk, std::span<std::byte> content) const {
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t count =
        ::pread(descriptor_.number(), content.data() + done, content.size() - done,
                static_cast<off_t>(table_.begin(chunk) + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw store::system_error("read", path_, errno);
    if (count == 0) {
      throw store::StoreError(store::StoreError::Kind::corrupt,
                              "{} was truncated by another process", path_.string());
    }
    done += static_cast<std::size_t>(count);
  }
}

void PartialFile::save() {
  if (::fdatasync(descriptor_.number()) != 0) {
    chunk_file_failed("make durable", path_, errno, table_.size);
  }
  const PresentChunks present{table_.id(), FileStamp::of(path_), present_.runs()};
  store::replace_file(note(), fields::to_object(present).dump());
}

void PartialFile::finish(const fs::path& name) {
  if (::fsync(descriptor_.number()) != 0) {
    chunk_file_failed("make durable", path_, errno, table_.size);
  }
  if (::rename(path_.c_str(), name.c_str()) != 0) {
    throw store::system_error("rename", name, errno);
  }
  std::error_code ignored;
  fs::remove(note(), ignored);  // a note without its file is ignored
  store::sync_directory(name.parent_path());
}

}  // namespace strait::transfer
