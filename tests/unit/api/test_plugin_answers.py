"""What people are shown of plugins: which are in use, what they refuse, what went wrong in them."""

from shared.model.reasons import Reason
from tests.unit.api.following import System


def at_most_two(policy):
    def capacity(application, amount):
        if amount.get("vcore", 0) > 5:
            raise ZeroDivisionError("division by zero")
        return "more than 2 vcores" if amount.get("vcore", 0) > 2 else ""

    policy.capacity.append(capacity)


async def test_what_a_plugin_refuses_is_said_of_the_asks_that_it_refused():
    system = System(plugins={"limits": at_most_two})
    system.node("n", vcore=1)
    system.application("app")
    system.asks("app", ["fits-not"], {"vcore": 2})
    system.asks("app", ["refused"], {"vcore": 3})
    system.asks("app", ["failed"], {"vcore": 6})
    system.partition.set_max(system.partition.root, {"vcore": 100})
    for key, vcore in (("fits-not-2", 2), ("refused-2", 3), ("failed-2", 6)):
        system.asks("app", [key], {"vcore": vcore})
    view = system.model.application("app")
    why = {key: system.model.why(view, ask) for key, ask in view.asks.items()}
    assert why["fits-not"].reason == Reason.NODE_TOO_SMALL
    assert (why["refused"].reason, why["refused"].text) == (
        Reason.PLUGIN,
        "plugin limits: more than 2 vcores",
    )
    assert why["failed"].reason == Reason.PLUGIN
    answer = (await system.get("/v1/config")).json()
    assert answer["plugins"] == ["limits"]
    (warning,) = answer["warnings"]
    assert warning.startswith("plugin limits: capacity raised ZeroDivisionError: division by zero")
