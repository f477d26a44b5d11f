#include "launcher/run/inference_driver.h"

#include "launcher/base/errors.h"

namespace strait::run {

void InferenceDriver::begin() {
  if (client_ != nullptr) submit(client_->begin());
}

void InferenceDriver::on_answer(const InferenceAnswer& answer) {
  if (client_ == nullptr) throw base::MessageError("an answer that nothing asked for");
  submit(client_->on_answer(answer));
}

void InferenceDriver::submit(const std::vector<InferenceRequest>& requests) {
  Worker& first = workers_.at(net::ProcessName{0, 0});
  for (const InferenceRequest& request : requests) {
    std::visit([&](const auto& message) { workers_.send(first, message); }, request);
  }
  if (client_->finished()) workers_.broadcast(StopAfterStep{});
}

}  // namespace strait::run
