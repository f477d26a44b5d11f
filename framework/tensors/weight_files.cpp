#include "framework/tensors/weight_files.h"

#include <ATen/ATen.h>

#include <set>

#include "framework/shell_word.h"
#include "framework/store/input_file.h"
#include "framework/store/store_error.h"

namespace strait::tensors {
namespace {

constexpr std::uint64_t kIndexBytes = 100'000'000;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

[[noreturn]] void refuse_weights(const std::string& sentence) {
  throw store::StoreError(store::StoreError::Kind::bad_input, sentence);
}

// A partly removed download cache leaves such links.
void refuse_dangling_link(const std::filesystem::path& file) {
  std::error_code ignored;
  if (!std::filesystem::is_symlink(file, ignored) || std::filesystem::exists(file, ignored)) return;
  refuse_weights(fmt::format("{} is a link to {}, which is missing; put the file there again",
                             file.string(), std::filesystem::read_symlink(file, ignored).string()));
}

// A clone without Git LFS has such files.
void refuse_git_lfs_pointer(const std::filesystem::path& file) {
  constexpr std::string_view kPointer = "version https://git-lfs";
  const store::InputFile input(file);
  if (input.size() < kPointer.size()) return;
  std::string begin(kPointer.size(), '\0');
  input.read(0, std::as_writable_bytes(std::span(begin)));
  if (begin != kPointer) return;
  refuse_weights(fmt::format("{} is a pointer of Git LFS, not the file; fetch it with git lfs pull",
                             file.string()));
}

}  // namespace

WeightFiles::WeightFiles(std::filesystem::path directory) : directory_(std::move(directory)) {
  std::error_code ignored;
  // Before the search: exists() follows links, so a dangling one would look like a missing file.
  for (const char* name : {kSingle, kIndex}) refuse_dangling_link(directory_ / name);
  if (std::filesystem::exists(directory_ / kSingle, ignored)) {
    open_shard(directory_ / kSingle);
  } else if (std::filesystem::exists(directory_ / kIndex, ignored)) {
    open_index(directory_ / kIndex);
  } else if (std::filesystem::exists(directory_ / "pytorch_model.bin", ignored) ||
             std::filesystem::exists(directory_ / "pytorch_model.bin.index.json", ignored)) {
    refuse_weights(fmt::format(
        "{} holds its weights as pytorch_model.bin only, a format that can run code when it is "
        "read; convert it once, with transformers: python3 -c 'import sys; from transformers "
        "import AutoModelForCausalLM as M; M.from_pretrained(sys.argv[1], "
        "torch_dtype=\"auto\").save_pretrained(sys.argv[1])' {}",
        directory_.string(), shell_word(directory_.string())));
  } else if (!std::filesystem::is_directory(directory_, ignored)) {
    refuse_weights(fmt::format("the model's directory {} is missing; put its files back there",
                               directory_.string()));
  } else {
    refuse_weights(fmt::format("{} holds neither {} nor {}; put the model's files back there",
                               directory_.string(), kSingle, kIndex));
  }
  // where_ is sorted, and find() relies on that.
  for (const auto& [name, shard] : where_) tensors_.push_back({*shard->find(name), shard->path()});
}

void WeightFiles::open_index(const std::filesystem::path& index) {
  const store::WeightIndex weight_map =
      store::parse_weight_index(store::read_text_file(index, kIndexBytes), index.string());
  std::set<std::string> files;
  for (const auto& [tensor, file] : weight_map) files.insert(file);
  for (const std::string& file : files) {
    const std::filesystem::path path = directory_ / file;
    refuse_dangling_link(path);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      refuse_weights(fmt::format("{} is missing; {} lists it", path.string(), index.string()));
    }
    open_shard(path);
  }
  for (const auto& [tensor, file] : weight_map) {
    const auto found = where_.find(tensor);
    // Also the file has to agree: an index of another download may name the same tensors.
    if (found == where_.end() || found->second->path() != directory_ / file) {
      refuse_weights(fmt::format("{} does not hold tensor \"{}\", which {} says is there",
                                 (directory_ / file).string(), tensor, index.string()));
    }
  }
}

void WeightFiles::open_shard(const std::filesystem::path& file) {
  refuse_git_lfs_pointer(file);
  shards_.push_back(std::make_unique<SafetensorsReader>(file));
  const SafetensorsReader* shard = shards_.back().get();
  for (const store::TensorInfo& info : shard->tensors()) {
    const auto [place, added] = where_.emplace(info.name, shard);
    if (!added) {
      refuse_weights(fmt::format("tensor \"{}\" is in {} and in {}", info.name,
                                 place->second->path().string(), file.string()));
    }
  }
}

const WeightFiles::Entry* WeightFiles::find(const std::string& name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const Entry& entry, const std::string& wanted) { return entry.info.name < wanted; });
  return found == tensors_.end() || found->info.name != name ? nullptr : &*found;
}

at::Tensor WeightFiles::read(const std::string& name) const { return shard_of(name).read(name); }

at::Tensor WeightFiles::read_rows(const std::string& name, std::int64_t first,
                                  std::int64_t count) const {
  return shard_of(name).read_rows(name, first, count);
}

const SafetensorsReader& WeightFiles::shard_of(const std::string& name) const {
  const auto found = where_.find(name);
  if (found == where_.end()) {
    refuse_weights(fmt::format("{} has no tensor \"{}\"", directory_.string(), name));
  }
  return *found->second;
}

}  // namespace strait::tensors
