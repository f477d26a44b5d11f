#include "launcher/transfer/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "framework/store/atomic_file.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"

namespace strait::transfer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostNoteText = std::uint64_t{256} << 20;

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

void require_room(const fs::path& directory, std::uint64_t bytes, const std::string& what) {
  const std::uint64_t available = free_bytes(directory);
  if (bytes <= available) return;
  throw store::StoreError(
      store::StoreError::Kind::storage_full,
      fmt::format("no room for {}: {} bytes are needed, {} are free in {}; make room there", what,
                  bytes, available, directory.string()));
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
    const auto json = nlohmann::json::parse(store::read_text_file(note(), kMostNoteText));
    const FileStamp stamp = stamp_from_json(json);
    if (json.at("table") != table_.id() || stamp != FileStamp::of(path_)) return false;
    std::vector<ChunkRun> runs;
    for (const auto& run : json.at("runs")) runs.push_back({run.at(0), run.at(1)});
    return present_.insert(runs);
  } catch (const nlohmann::json::exception&) {
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
                              fmt::format("{} was truncated by another process", path_.string()));
    }
    done += static_cast<std::size_t>(count);
  }
}

void PartialFile::save() {
  if (::fdatasync(descriptor_.number()) != 0) {
    chunk_file_failed("make durable", path_, errno, table_.size);
  }
  nlohmann::json json = stamp_to_json(FileStamp::of(path_));
  json["table"] = table_.id();
  json["runs"] = nlohmann::json::array();
  for (const ChunkRun& run : present_.runs()) json["runs"].push_back({run.first, run.count});
  store::replace_file(note(), json.dump());
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
