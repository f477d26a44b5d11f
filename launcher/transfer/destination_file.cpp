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

}  // namespace

DestinationFile::DestinationFile(fs::path path, std::shared_ptr<PinnedContent> held)
    : path_(std::move(path)), held_(std::move(held)) {}

std::unique_ptr<DestinationFile> DestinationFile::open(ContentStore& store, const FetchRequest& order,
                                       const fs::path& local) {
  std::shared_ptr<PinnedContent> held;
  store::make_directory(order.path.parent_path());
  if (order.as == FetchRequest::As::content) {
    held = std::make_shared<PinnedContent>(store.hold(order.table));
    if (!held->try_to_write()) return nullptr;
  }
  std::unique_ptr<DestinationFile> landing(new DestinationFile(order.path, held));
  const fs::path data = held ? held->data() : fs::path(order.path.string() + kPart);
  landing->file_.emplace(data, order.table);
  ChunkSet lacking = order.chunks;
  lacking.erase(landing->file_->chunks());
  const std::uint64_t bytes = lacking.bytes(order.table);
  if (held && bytes > 0) store.prune(bytes);
  require_room(data.parent_path(), bytes, order.path.string());
  if (!local.empty() && local != data) landing->copy_from(local, lacking);
  return landing;
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
      file_->write(chunk, content);  // unless it is another chunk: then it has to be fetched
    }
  } catch (const store::StoreError& error) {
    // What cannot be read here is fetched; what cannot be written has no place here.
    if (error.kind() == store::StoreError::Kind::storage_full) throw;
  }
}

void DestinationFile::finish() {
  if (!held_) {
    file_->finish(path_);
    return;
  }
  file_->settle();
  held_->end_writing();
  place_link(path_, held_->data());
}

void DestinationFile::leave() {
  try {
    file_->settle();
  } catch (const store::StoreError&) {
    // Without the note the next one reads the chunks to know them.
  }
  if (held_) held_->end_writing();
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
