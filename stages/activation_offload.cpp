#include "stages/activation_offload.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "kernels/current_stream.h"

namespace strait::stages {
namespace {

using Pass = ActivationOffload::Pass;

// A power of two, to which the allocator of pinned memory rounds up. Equal pieces serve any pass.
constexpr std::int64_t kPieceBytes = 8 << 20;

// What this thread records, and the least bytes of a storage of it.
thread_local Pass* recorded_pass = nullptr;
thread_local std::int64_t least_bytes_recorded = 0;

// The shape of a tensor, and how it lies in its storage.
struct View {
  c10::DispatchKeySet keys;
  caffe2::TypeMeta type;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;

  at::Tensor of(c10::Storage storage) const {
    auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, type);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
    return tensor;
  }
};

// A tensor that autograd saved.
class SavedTensor final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SavedTensor(Pass& pass) : pass_(pass) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    const bool moves = tensor.defined() && !tensor.is_cpu() && tensor.has_storage() &&
                       static_cast<std::int64_t>(tensor.storage().nbytes()) >= least_bytes_recorded;
    if (!moves) {
      stays_ = tensor;
      return;
    }
    std::shared_ptr<ActivationOffload::Storage>& storage =
        pass_.by_address[tensor.storage().unsafeGetStorageImpl()];
    if (storage == nullptr) {
      storage = std::make_shared<ActivationOffload::Storage>();
      storage->size = static_cast<std::int64_t>(tensor.storage().nbytes());
      storage->bytes =
          View{tensor.key_set(), caffe2::TypeMeta::Make<std::uint8_t>(), {storage->size}, {1}}.of(
              tensor.storage());
      pass_.storages.push_back(storage);
    }
    storage_ = storage;
    view_ = {tensor.key_set(), tensor.dtype(), tensor.sizes().vec(), tensor.strides().vec(),
             tensor.storage_offset()};
  }

  at::Tensor call_unpack_hook() override {
    if (storage_ == nullptr) return stays_;
    TORCH_INTERNAL_ASSERT(storage_->bytes.defined(), "a backward reads activations in host memory");
    return view_.of(storage_->bytes.storage());
  }

 private:
  Pass& pass_;
  at::Tensor stays_;
  std::shared_ptr<ActivationOffload::Storage> storage_;  // null: it stays
  View view_;
};

// libtorch asks its engine for hooks of each tensor that a graph saves. Python's engine returns the
// hooks of its user, this one the hooks of the recording.
class HookedAutograd final : public torch::autograd::Engine {
 public:
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return recorded_pass == nullptr ? nullptr : std::make_unique<SavedTensor>(*recorded_pass);
  }
};

torch::autograd::Engine& hooked_autograd() {
  static auto* const kEngine = new HookedAutograd;  // its threads run until the process ends
  return *kEngine;
}

// Copies a storage to or from its place in the pieces.
void copy(Pass& pass, const ActivationOffload::Storage& storage, bool to_host) {
  std::int64_t at = storage.start;
  for (std::int64_t done = 0; done < storage.size;) {
    const std::int64_t within = at % kPieceBytes;
    const std::int64_t size = std::min(storage.size - done, kPieceBytes - within);
    at::Tensor host =
        pass.host.at(static_cast<std::size_t>(at / kPieceBytes)).narrow(0, within, size);
    at::Tensor device = storage.bytes.narrow(0, done, size);
    (to_host ? host : device).copy_(to_host ? device : host, /*non_blocking=*/true);
    done += size;
    at += size;
  }
}

}  // namespace

ActivationOffload::Recording::Recording(const ActivationOffload& offload, Pass& pass) {
  TORCH_INTERNAL_ASSERT(recorded_pass == nullptr, "two recordings on one thread");
  recorded_pass = &pass;
  least_bytes_recorded = offload.smallest_;
}

ActivationOffload::Recording::~Recording() { recorded_pass = nullptr; }

ActivationOffload::ActivationOffload(at::Device device, std::int64_t smallest)
    : device_(device),
      smallest_(smallest),
      down_(kernels::stream_for_copies(device)),
      up_(kernels::stream_for_copies(device)),
      pieces_(at::kByte, /*pinned=*/true) {
  torch::autograd::set_default_engine_stub(hooked_autograd);
}

void ActivationOffload::leave(Pass& pass) {
  pass.by_address.clear();
  // A storage with another owner would stay in the device's memory all the same.
  std::erase_if(pass.storages,
                [](const auto& one) { return one->bytes.storage().use_count() > 1; });
  if (pass.storages.empty()) return;
  std::int64_t end = 0;
  for (const std::shared_ptr<Storage>& storage : pass.storages) {
    storage->start = end;
    end += storage->size;
  }
  for (std::int64_t held = 0; held < end; held += kPieceBytes) {
    pass.host.push_back(pieces_.take(std::array{kPieceBytes}));
  }
  const at::NoGradGuard no_grad;
  const auto computed = kernels::event_on(kernels::current_stream(device_));
  computed->block(down_);
  const c10::StreamGuard copying(down_);
  for (const std::shared_ptr<Storage>& storage : pass.storages) copy(pass, *storage, true);
  pass.left = left_ = kernels::event_on(down_);
  leaving_ = pass.storages;
}

void ActivationOffload::settle() {
  if (left_ == nullptr) return;
  // Memory that the stream frees after this wait is not read by the copies any more.
  left_->block(kernels::current_stream(device_));
  left_.reset();
  for (const std::shared_ptr<Storage>& storage : leaving_) storage->bytes.reset();
  leaving_.clear();
}

void ActivationOffload::come_back(Pass& pass) {
  if (pass.left == nullptr || pass.back != nullptr) return;
  if (pass.left == left_) {
    // It is still on the device, too.
    leaving_.clear();
    pass.back = std::move(left_);
    return;
  }
  const at::NoGradGuard no_grad;
  for (const std::shared_ptr<Storage>& storage : pass.storages) {
    storage->bytes =
        at::empty({storage->size}, at::TensorOptions().dtype(at::kByte).device(device_));
  }
  // The current stream may still use memory that it has just freed. It has waited for the copies to
  // host memory, too.
  kernels::event_on(kernels::current_stream(device_))->block(up_);
  const c10::StreamGuard copying(up_);
  for (const std::shared_ptr<Storage>& storage : pass.storages) copy(pass, *storage, false);
  pass.back = kernels::event_on(up_);
}

void ActivationOffload::arrive(Pass& pass) {
  come_back(pass);
  if (pass.back == nullptr) return;
  // The pieces are written again after later work of the current stream, so after this copy.
  pass.back->block(kernels::current_stream(device_));
  pass.host.clear();
  // The graph alone holds the storages now, and frees each after its last use.
  pass.storages.clear();
}

}  // namespace strait::stages
