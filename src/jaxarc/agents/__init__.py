"""Agents that play whole episodes: rollouts with a policy, scores on test pairs, and a painter that knows the answer."""
