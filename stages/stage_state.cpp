#include "stages/stage_state.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "framework/bytes.h"
#include "framework/codec/message.h"
#include "framework/store/file_hash.h"
#include "framework/store/store_error.h"

namespace strait::stages {
namespace {

constexpr const char* kFirstMoment = ".first_moment";
constexpr const char* kSecondMoment = ".second_moment";
constexpr const char* kUpdates = ".updates";
constexpr const char* kSizes = ".sizes";  // of blocks, after the name of a moment
// 1 MiB of float32 per message: every part that arrives counts as progress.
constexpr std::int64_t kPartValues = std::int64_t{1} << 18U;
// How often a wait for a part calls `poll`.
constexpr std::chrono::milliseconds kPollInterval{20};

void check_shape(const at::Tensor& target, const at::Tensor& source, const std::string& name) {
  if (source.sizes() == target.sizes()) return;
  throw store::StoreError(store::StoreError::Kind::bad_input,
                          "tensor {} has shape [{}] where the model has [{}]", name,
                          fmt::join(source.sizes(), ", "), fmt::join(target.sizes(), ", "));
}

void copy_into(const at::Tensor& target, const at::Tensor& source, const std::string& name) {
  check_shape(target, source, name);
  target.copy_(source);
}

// "HASH", or "nf4:HASH".
std::string hash_of(const models::Parameter& parameter) {
  const at::Tensor values = parameter.quantized ? parameter.quantized->bytes : parameter.value;
  const at::Tensor bytes = values.detach().cpu().contiguous();
  std::string hash =
      store::hash_bytes({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()});
  if (!parameter.quantized) return hash;
  return fmt::format("{}:{}", name_of(parameter.quantized->shape.format), hash);
}

at::Tensor tensor_of(const std::string& text) {
  at::Tensor stored = at::empty({static_cast<std::int64_t>(text.size())}, at::kByte);
  std::ranges::copy(text, static_cast<char*>(stored.mutable_data_ptr()));
  return stored;
}

std::string text_of(const at::Tensor& stored) {
  return {static_cast<const char*>(stored.const_data_ptr()), stored.nbytes()};
}

// The quantisation of a hashed weight, in words.
std::string kept_as(const std::string& hash) {
  const std::size_t colon = hash.find(':');
  return colon == std::string::npos ? "not quantised" : "quantised to " + hash.substr(0, colon);
}

// Narrow moments are not in slots; they follow these.
std::vector<std::string> sent_slots(const sync::Slots& slots, const std::string& model) {
  std::vector<std::string> names = sync::shared_slots(slots.needs(), model);
  if (slots.values(sync::kFirstMoment).empty()) return names;
  names.insert(names.begin() + 1,
               {std::string(sync::kFirstMoment), std::string(sync::kSecondMoment)});
  return names;
}

// Both ends visit the same parts in the same order, because messages do not describe their content.
template <class Visit>
void visit_parts(const sync::Slots& slots, const std::string& model, Visit visit) {
  const std::int64_t size = slots.layout().size();
  for (const std::string& name : sent_slots(slots, model)) {
    for (std::int64_t first = 0; first < size; first += kPartValues) {
      visit(name, sync::Range{first, std::min(first + kPartValues, size)});
    }
  }
}

std::vector<at::Tensor> narrow_moments(const AdamW& optimizer) {
  std::vector<at::Tensor> moments;
  if (optimizer.has_float_moments()) return moments;
  for (const AdamW::Slot& slot : optimizer.slots()) {
    for (const kernels::CodedMoment* moment : {&slot.first_moment, &slot.second_moment}) {
      if (!moment->values.defined()) continue;
      moments.push_back(moment->values.view({-1}));
      if (moment->sizes.defined()) moments.push_back(moment->sizes);
    }
  }
  return moments;
}

// A part of a moment, with the name of what it is in messages.
template <class Visit>
void visit_moments(const AdamW& optimizer, Visit visit) {
  for (const at::Tensor& moment : narrow_moments(optimizer)) {
    for (std::int64_t first = 0; first < moment.numel(); first += kPartValues) {
      visit(moment.narrow(0, first, std::min(kPartValues, moment.numel() - first)));
    }
  }
}

net::Frame receive_part(net::Link& link, std::size_t bytes, const std::string& what,
                        const std::function<void(bool)>& poll) {
  std::optional<net::Frame> frame;
  while (!frame) {
    poll(false);
    frame = link.receive_until(std::chrono::steady_clock::now() + kPollInterval);
  }
  poll(true);
  if (frame->size() == bytes) return std::move(*frame);
  throw codec::CodecError(fmt::format("{} sent {} bytes of {} where {} were expected",
                                      link.state().peer, frame->size(), what, bytes));
}

}  // namespace

void load_parameter(const models::Parameter& parameter, const ReadTensor& read) {
  const at::Tensor values = read(parameter.name);
  check_shape(parameter.value, values, parameter.name);
  assign(parameter, values);
}

void load_weights(AdamW& optimizer, const ReadTensor& read,
                  const std::function<bool(const std::string& name)>& chosen) {
  const at::NoGradGuard no_grad;
  for (const AdamW::Slot& slot : optimizer.slots()) {
    if (!chosen || chosen(slot.name)) copy_into(slot.master, read(slot.name), slot.name);
  }
  optimizer.publish();
}

void restore(AdamW& optimizer, const ReadTensor& read) {
  load_weights(optimizer, read);
  for (const AdamW::Slot& slot : optimizer.slots()) {
    copy_into(slot.updates, read(slot.name + kUpdates), slot.name + kUpdates);
    if (!slot.owned) continue;
    for (const auto& [suffix, kind] : {std::pair{kFirstMoment, kernels::MomentKind::first},
                                       std::pair{kSecondMoment, kernels::MomentKind::second}}) {
      if (kind == kernels::MomentKind::second && !slot.second_moment.values.defined()) continue;
      const std::string name = slot.name + suffix;
      kernels::CodedMoment saved{read(name), {}};
      check_shape(slot.master, saved.values, name);
      if (saved.values.scalar_type() == at::kByte) saved.sizes = read(name + kSizes);
      optimizer.set_moment(slot, kind, saved);
    }
  }
}

std::vector<tensors::NamedTensor> saved_moments(const AdamW& optimizer) {
  std::vector<tensors::NamedTensor> tensors;
  for (const AdamW::Slot& slot : optimizer.slots()) {
    for (const auto& [suffix, moment] : {std::pair{kFirstMoment, &slot.first_moment},
                                         std::pair{kSecondMoment, &slot.second_moment}}) {
      if (!moment->values.defined()) continue;
      tensors.push_back({slot.name + suffix, moment->values});
      if (moment->sizes.defined()) tensors.push_back({slot.name + suffix + kSizes, moment->sizes});
    }
  }
  return tensors;
}

std::vector<tensors::NamedTensor> saved_tensors(const AdamW& optimizer) {
  std::vector<tensors::NamedTensor> tensors = saved_moments(optimizer);
  for (const AdamW::Slot& slot : optimizer.slots()) {
    tensors.push_back({slot.name, slot.master});
    tensors.push_back({slot.name + kUpdates, slot.updates});
  }
  return tensors;
}

std::string frozen_hash_name(const std::string& parameter) { return "frozen/" + parameter; }

void append_hashes(const std::vector<models::Parameter>& frozen,
                   std::vector<tensors::NamedTensor>& tensors) {
  for (const models::Parameter& parameter : frozen) {
    // The other half of a tied weight has the same name.
    if (!parameter.owned) continue;
    tensors.push_back({frozen_hash_name(parameter.name), tensor_of(hash_of(parameter))});
  }
}

void check_hashes(const std::vector<models::Parameter>& frozen, const ReadTensor& read) {
  for (const models::Parameter& parameter : frozen) {
    const std::string before = text_of(read(frozen_hash_name(parameter.name)));
    const std::string now = hash_of(parameter);
    if (before == now) continue;
    if (kept_as(before) != kept_as(now)) {
      throw store::StoreError(store::StoreError::Kind::bad_input,
                              "tensor {} of the model was {} when this run's adapters were "
                              "trained, and is {} now; resume with the run's own "
                              "model.quantization, or start a new run from its exported adapter",
                              parameter.name, kept_as(before), kept_as(now));
    }
    throw store::StoreError(store::StoreError::Kind::bad_input,
                            "tensor {} of the model is not the one that this run's adapters were "
                            "trained with; bring back the model's former files, or start a new run",
                            parameter.name);
  }
}

void send_state(const sync::Slots& slots, const std::string& model, const AdamW& optimizer,
                net::Link& link) {
  visit_parts(slots, model, [&](const std::string& name, sync::Range range) {
    const std::span<const std::byte> bytes = slots.bytes(name, range);
    net::Frame frame;
    append_bytes(frame, bytes);
    link.send(std::move(frame));
  });
  visit_moments(optimizer, [&](const at::Tensor& part) {
    const at::Tensor values = part.cpu();
    net::Frame frame;
    append_bytes(frame, {static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()});
    link.send(std::move(frame));
  });
  net::Frame counters;
  for (const AdamW::Slot& slot : optimizer.slots()) {
    append_value(counters, slot.updates.item<float>());
  }
  link.send(std::move(counters));
}

void receive_state(sync::Slots& slots, const std::string& model, AdamW& optimizer, net::Link& link,
                   const std::function<void(bool received)>& poll) {
  visit_parts(slots, model, [&](const std::string& name, sync::Range range) {
    const std::span<std::byte> bytes = slots.bytes(name, range);
    const net::Frame part = receive_part(link, bytes.size(), "slot " + name, poll);
    std::ranges::copy(part, bytes.begin());
  });
  visit_moments(optimizer, [&](const at::Tensor& part) {
    net::Frame bytes = receive_part(link, part.nbytes(), "moments", poll);
    part.copy_(at::from_blob(bytes.data(), part.sizes(), at::TensorOptions(part.scalar_type())));
  });
  const net::Frame counters =
      receive_part(link, optimizer.slots().size() * sizeof(float), "counters", poll);
  ByteReader reader(counters);
  for (const AdamW::Slot& slot : optimizer.slots()) slot.updates.fill_(reader.value<float>());
  // This replica's own weights were lost with it, so it continues from the agreed model.
  if (model != sync::kWeights) {
    slots.load(model, {0, slots.layout().size()}, slots.values(sync::kWeights));
  }
  optimizer.publish();
}

}  // namespace strait::stages
