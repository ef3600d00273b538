// A mutex for what a forked child inherits.
//
// A child has none of its parent's other threads. A mutex that nobody held is free in the child
// too. One that another thread held would stay locked for ever, around something half done: there
// `lock` throws instead.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <stdexcept>

namespace pellucid {

class ForkMutex {
 public:
  ForkMutex() : state_(new State(getpid())) {}
  ~ForkMutex() { delete state_.load(); }
  ForkMutex(const ForkMutex&) = delete;
  ForkMutex& operator=(const ForkMutex&) = delete;

  // Throws std::runtime_error in a child forked while another thread held the mutex.
  void lock() {
    State& state = mine();
    state.mutex.lock();
    state.held.store(true);
  }
  void unlock() {
    State& state = *state_.load();
    state.held.store(false);
    state.mutex.unlock();
  }

 private:
  struct State {
    explicit State(pid_t pid) : owner(pid) {}
    pid_t owner;
    std::atomic<bool> held{false};
    std::mutex mutex;
  };

  State& mine() {
    State* state = state_.load();
    if (state->owner == getpid()) return *state;
    if (state->held.load())
      throw std::runtime_error(
          "this process was forked in the middle of a step: load the model again in it");
    auto* fresh = new State(getpid());
    // The parent's is left as it is: what the system made of its insides is not known.
    if (state_.compare_exchange_strong(state, fresh)) return *fresh;
    delete fresh;  // another thread of the child came first
    return *state;
  }

  std::atomic<State*> state_;
};

}  // namespace pellucid
