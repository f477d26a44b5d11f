#include "stages/stage_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "framework/store/store_error.h"

namespace strait::stages {
namespace {

constexpr const char* kFirstMoment = ".first_moment";
constexpr const char* kSecondMoment = ".second_moment";
constexpr const char* kUpdates = ".updates";

void copy_into(const at::Tensor& target, const at::Tensor& source, const std::string& name) {
  if (source.sizes() != target.sizes()) {
    throw store::StoreError(
        store::StoreError::Kind::bad_input,
        fmt::format("tensor {} has shape [{}] where the model has [{}]", name,
                    fmt::join(source.sizes(), ", "), fmt::join(target.sizes(), ", ")));
  }
  target.copy_(source);
}

}  // namespace

void load_weights(AdamW& optimizer, const ReadTensor& read) {
  const at::NoGradGuard no_grad;
  for (const AdamW::Slot& slot : optimizer.slots()) {
    copy_into(slot.master, read(slot.name), slot.name);
  }
  optimizer.publish();
}

void restore(AdamW& optimizer, const ReadTensor& read) {
  load_weights(optimizer, read);
  for (const AdamW::Slot& slot : optimizer.slots()) {
    for (const auto& [suffix, target] :
         {std::pair{kFirstMoment, slot.first_moment}, std::pair{kSecondMoment, slot.second_moment},
          std::pair{kUpdates, slot.updates}}) {
      copy_into(target, read(slot.name + suffix), slot.name + suffix);
    }
  }
}

std::vector<tensors::NamedTensor> saved_tensors(const AdamW& optimizer) {
  std::vector<tensors::NamedTensor> tensors;
  for (const AdamW::Slot& slot : optimizer.slots()) {
    if (!slot.owned) continue;
    tensors.push_back({slot.name, slot.master});
    tensors.push_back({slot.name + kFirstMoment, slot.first_moment});
    tensors.push_back({slot.name + kSecondMoment, slot.second_moment});
    tensors.push_back({slot.name + kUpdates, slot.updates});
  }
  return tensors;
}

}  // namespace strait::stages
