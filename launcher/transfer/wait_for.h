#pragma once

#include <chrono>
#include <future>

namespace strait::transfer {

// Waits for a result. `poll` is called while it waits, and throws to give up.
template <class T, class Poll>
T wait_for(std::future<T>& future, const Poll& poll) {
  constexpr std::chrono::milliseconds kPollEvery{20};
  while (future.wait_for(kPollEvery) != std::future_status::ready) poll();
  return future.get();
}

}  // namespace strait::transfer
