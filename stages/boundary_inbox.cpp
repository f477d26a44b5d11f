#include "stages/boundary_inbox.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "framework/codec/codec_error.h"

namespace strait::stages {

codec::TensorHeader about_rows(codec::Kind kind, const codec::TensorHeader& tensor,
                               const std::vector<std::int64_t>& places) {
  codec::TensorHeader head;
  head.kind = kind;
  head.step = tensor.step;
  head.micro_batch = tensor.micro_batch;
  head.width = tensor.width;
  head.rows.padded_length = tensor.rows.padded_length;
  for (const std::int64_t place : places) {
    head.rows.rows.push_back(tensor.rows.rows.at(static_cast<std::size_t>(place)));
  }
  return head;
}

void BoundaryInbox::push(codec::TensorHeader head, codec::Decoded decoded) {
  bytes_ += decoded.values.nbytes();
  if (!decoded.missing.empty()) ++incomplete_;
  arrived_.push_back(Arrived{std::move(head), std::move(decoded)});
}

BoundaryInbox::Arrived BoundaryInbox::pop() {
  TORCH_INTERNAL_ASSERT(ready(), "what is not complete was taken");
  Arrived front = std::move(arrived_.front());
  arrived_.pop_front();
  bytes_ -= front.decoded.values.nbytes();
  return front;
}

std::size_t BoundaryInbox::place_of(const codec::TensorHeader& answer) const {
  const auto found = std::ranges::find_if(arrived_, [&](const Arrived& arrived) {
    return !arrived.decoded.missing.empty() && arrived.head.step == answer.step &&
           arrived.head.micro_batch == answer.micro_batch;
  });
  const std::string name =
      fmt::format("rows of step {} micro-batch {}", number(answer.step), answer.micro_batch);
  if (found == arrived_.end()) {
    throw codec::CodecError(name + " came a second time, but nobody here asked for them");
  }
  const codec::TensorHeader expected = about_rows(answer.kind, found->head, found->decoded.missing);
  if (answer.evaluation || answer.width != expected.width || answer.rows != expected.rows) {
    throw codec::CodecError(
        fmt::format("{} came a second time, {} of them and of width {}, but they are not the {} of "
                    "width {} that were asked for",
                    name, answer.rows.size(), answer.width, expected.rows.size(), expected.width));
  }
  return static_cast<std::size_t>(found - arrived_.begin());
}

codec::Decoded BoundaryInbox::asked_for(const codec::TensorHeader& answer) const {
  return arrived_[place_of(answer)].decoded;
}

void BoundaryInbox::complete(const codec::TensorHeader& answer) {
  arrived_[place_of(answer)].decoded.missing.clear();
  --incomplete_;
}

}  // namespace strait::stages
