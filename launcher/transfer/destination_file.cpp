#include "launcher/transfer/destination_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <span>
#include <system_error>
#include <utility>
#include <vector>

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

}  // namespace strait::transfer
