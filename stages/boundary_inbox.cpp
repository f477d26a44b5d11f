#include "stages/boundary_inbox.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace strait::stages {

codec::TensorHeader rows_message(codec::Kind kind, const codec::TensorHeader& tensor,
                                 const std::vector<std::int64_t>& rows) {
  codec::TensorHeader header;
  header.kind = kind;
  header.step = tensor.step;
  header.micro_batch = tensor.micro_batch;
  header.width = tensor.width;
  header.rows.padded_length = tensor.rows.padded_length;
  for (const std::int64_t row : rows) {
    header.rows.rows.push_back(tensor.rows.rows.at(static_cast<std::size_t>(row)));
  }
  return header;
}

void BoundaryInbox::push(Arrived arrived) {
  bytes_ += arrived.values.tensor.nbytes();
  if (!arrived.missing.empty()) ++incomplete_;
  arrived_.push_back(std::move(arrived));
}

BoundaryInbox::Arrived BoundaryInbox::pop() {
  TORCH_INTERNAL_ASSERT(ready(), "a tensor with missing rows was taken");
  Arrived front = std::move(arrived_.front());
  arrived_.pop_front();
  bytes_ -= front.values.tensor.nbytes();
  return front;
}

std::size_t BoundaryInbox::find(const codec::TensorHeader& resent) const {
  const auto found = std::ranges::find_if(arrived_, [&](const Arrived& arrived) {
    return !arrived.missing.empty() && arrived.header.step == resent.step &&
           arrived.header.micro_batch == resent.micro_batch;
  });
  const std::string name =
      fmt::format("resent rows of step {} micro-batch {}", number(resent.step), resent.micro_batch);
  if (found == arrived_.end()) throw codec::CodecError(name + " were not requested");
  // Exactly the requested rows, or some would stay missing.
  const codec::TensorHeader expected = rows_message(resent.kind, found->header, found->missing);
  if (resent.evaluation || resent.width != expected.width || resent.rows != expected.rows) {
    throw codec::CodecError(fmt::format(
        "{} are not the requested ones: received {} of width {}, requested {} of width {}", name,
        resent.rows.size(), resent.width, expected.rows.size(), expected.width));
  }
  return static_cast<std::size_t>(found - arrived_.begin());
}

codec::Decoded BoundaryInbox::requested(const codec::TensorHeader& resent) const {
  const Arrived& incomplete = arrived_[find(resent)];
  return {incomplete.values.tensor, incomplete.missing};
}

void BoundaryInbox::complete(const codec::TensorHeader& resent, Copied values) {
  Arrived& incomplete = arrived_[find(resent)];
  incomplete.values = std::move(values);
  incomplete.missing.clear();
  --incomplete_;
}

}  // namespace strait::stages
