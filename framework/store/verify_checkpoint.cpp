#include "framework/store/verify_checkpoint.h"

#include <algorithm>

#include "framework/store/file_hash.h"
#include "framework/store/file_progress.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"
#include "framework/store/tensor_hashes.h"

namespace strait::store {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostHashes = std::uint64_t{64} << 20;

std::string hash_range(const InputFile& file, std::uint64_t begin, std::uint64_t end) {
  FileHash hash;
  file.each_piece(begin, end, kFilePiece, [&](auto bytes) { hash.update(bytes); });
  return hash.hex();
}

// Checks the files of one checkpoint.
class Verifier {
 public:
  Verifier(fs::path checkpoint, const Manifest& manifest, Part here)
      : checkpoint_(std::move(checkpoint)),
        manifest_(manifest),
        needed_(here == Part::all ? manifest.files : files_of(manifest, here)) {}

  Verification verify() {
    // All files first: which hashes can be trusted is known only then.
    for (const ShardFile& file : manifest_.files) look_at(file);
    for (const ShardFile* file : damaged_) name_tensors(*file);
    return std::move(result_);
  }

 private:
  void look_at(const ShardFile& file) {
    const fs::path path = checkpoint_ / file.name;
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (status.type() == fs::file_type::not_found) {
      if (std::ranges::find(needed_, file) == needed_.end()) {
        result_.elsewhere.push_back(file.name);
      } else {
        add(file, "", fmt::format("{} is missing; it had {} bytes", path.string(), file.size));
      }
      return;
    }
    if (error) throw system_error("look at", path, error.value());
    if (!fs::is_regular_file(status)) {
      return add(file, "", fmt::format("{} is not a file", path.string()));
    }
    const FileSummary found = hash_file(path);
    if (found == FileSummary{file.size, file.hash}) {
      result_.bytes += found.size;
      return;
    }
    // Exchanged files are a mistake of a copy, not damage, and have another remedy.
    const auto other = std::ranges::find_if(manifest_.files, [&found](const ShardFile& one) {
      return one.hash == found.hash && one.size == found.size;
    });
    if (other != manifest_.files.end()) {
      return add(
          file, "",
          fmt::format("{} has the content of {}: files were mixed up", path.string(), other->name));
    }
    if (found.size != file.size) {
      add(file, "",
          fmt::format("{} has {} bytes instead of {}", path.string(), found.size, file.size));
    }
    damaged_.push_back(&file);
  }

  // Finds the damaged tensors of a damaged file. The file's own header may be damaged too, so the
  // positions come from the hashes.
  void name_tensors(const ShardFile& file) {
    const fs::path path = checkpoint_ / file.name;
    const std::vector<TensorHash>* const tensors = tensors_of(file.name);
    const std::size_t before = result_.damage.size();
    if (tensors != nullptr) {
      const InputFile input(path);
      for (const TensorHash& tensor : *tensors) {
        if (tensor.end > input.size()) {
          add(file, tensor.name,
              fmt::format("{}: tensor \"{}\" is cut off", path.string(), tensor.name));
        } else if (hash_range(input, tensor.begin, tensor.end) != tensor.hash) {
          add(file, tensor.name,
              fmt::format("{}: tensor \"{}\" is damaged (bytes {} to {})", path.string(),
                          tensor.name, tensor.begin, tensor.end));
        }
      }
    }
    const bool said = std::ranges::any_of(
        result_.damage, [&file](const Damage& one) { return one.file == file.name; });
    if (result_.damage.size() > before || said) return;
    add(file, "",
        fmt::format("{} is damaged{}", path.string(),
                    tensors != nullptr ? " outside its tensors: in its header"
                                       : "; no hashes of its tensors show which one it is"));
  }

  // Null: no intact file of hashes covers this file.
  const std::vector<TensorHash>* tensors_of(const std::string& name) {
    if (!hashes_) read_hashes();
    const auto found = hashes_->find(name);
    return found == hashes_->end() ? nullptr : &found->second;
  }

  void read_hashes() {
    hashes_.emplace();
    for (const ShardFile& file : manifest_.files) {
      if (!file.name.ends_with(kHashesSuffix) || !is_intact(file)) continue;
      const fs::path path = checkpoint_ / file.name;
      TensorHashes known = TensorHashes::parse(read_text_file(path, kMostHashes), path.string());
      for (auto& [name, tensors] : known.files) hashes_->emplace(name, std::move(tensors));
    }
  }

  bool is_intact(const ShardFile& file) const {
    const auto is_named = [&file](const Damage& one) { return one.file == file.name; };
    return std::ranges::none_of(result_.damage, is_named) &&
           std::ranges::find(damaged_, &file) == damaged_.end() &&
           std::ranges::find(result_.elsewhere, file.name) == result_.elsewhere.end();
  }

  void add(const ShardFile& file, const std::string& tensor, const std::string& sentence) {
    result_.damage.push_back({file.name, tensor, sentence});
  }

  const fs::path checkpoint_;
  const Manifest& manifest_;
  const std::vector<ShardFile> needed_;
  std::vector<const ShardFile*> damaged_;  // they exist, with other content
  std::optional<std::map<std::string, std::vector<TensorHash>>> hashes_;  // by file, once read
  Verification result_;
};

}  // namespace

Verification verify_checkpoint(const fs::path& checkpoint, Part here) {
  std::optional<Manifest> manifest;
  try {
    manifest = open_checkpoint(checkpoint, Verify::manifest);
  } catch (const StoreError& error) {
    if (error.kind() != StoreError::Kind::corrupt) throw;
    return {.damage = {{kManifestName, "", error.what()}}, .elsewhere = {}};
  }
  return Verifier(checkpoint, *manifest, here).verify();
}

}  // namespace strait::store
